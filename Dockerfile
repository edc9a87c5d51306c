# Two flavours: `cpu` (the default) runs any model by OpenVINO; `static` has no torch, for static encoders alone.
#   docker build -t essent .                      docker run -p 8080:8080 -v ./models:/models:ro essent /models/my-encoder
#   docker build -t essent-static --target static .
FROM python:3.12-slim AS base
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    ESSENT_HOST=0.0.0.0 ESSENT_PORT=8080 MALLOC_ARENA_MAX=2
RUN useradd --create-home --uid 10001 essent
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
EXPOSE 8080
HEALTHCHECK --start-period=120s --interval=10s --timeout=3s CMD \
    ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"ESSENT_PORT\"]}/health')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["essent", "serve"]

FROM base AS static
RUN pip install ".[serve]" && rm -rf /build
WORKDIR /home/essent
USER 10001

FROM base AS cpu
RUN pip install --extra-index-url https://download.pytorch.org/whl/cpu ".[serve,openvino]" && rm -rf /build
WORKDIR /home/essent
USER 10001
