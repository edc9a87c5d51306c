# Two flavours: `cpu` (the default) runs any model by OpenVINO; `slim` has no torch, for saved graphs and static encoders.
#   docker build -t essent .                      docker run -p 8080:8080 -v ./models:/models:ro essent /models/my-encoder
#   docker build -t essent-slim --target slim .   docker run -p 8080:8080 -v ./models:/models:ro essent-slim /models/graph
FROM python:3.12-slim AS base
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
RUN useradd --create-home --uid 10001 essent
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
EXPOSE 8080
HEALTHCHECK --start-period=120s --interval=10s --timeout=3s CMD \
    ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["essent", "serve", "--host", "0.0.0.0"]

FROM base AS slim
RUN pip install ".[serve,openvino]" && rm -rf /build
WORKDIR /home/essent
USER 10001

FROM base AS cpu
RUN pip install --extra-index-url https://download.pytorch.org/whl/cpu ".[torch,serve,openvino]" && rm -rf /build
WORKDIR /home/essent
USER 10001
