"""What a request is answered when it cannot be served, in the shapes of OpenAI's and of TEI's clients."""

from __future__ import annotations

from typing import Any

from essent.errors import EssentError

KINDS = {  # status: OpenAI's type, TEI's error_type
    400: ("invalid_request_error", "Validation"),
    401: ("authentication_error", "Unauthorized"),
    404: ("invalid_request_error", "Validation"),
    405: ("invalid_request_error", "Validation"),
    408: ("timeout_error", "Overloaded"),
    413: ("invalid_request_error", "Validation"),
    422: ("invalid_request_error", "Validation"),
    424: ("server_error", "Backend"),
    429: ("rate_limit_error", "Overloaded"),
    500: ("server_error", "Backend"),
    503: ("server_error", "Unhealthy"),
}
TEI_400 = {"empty_input": "Empty", "ambiguous_headers": "Validation"}  # code: TEI's error_type


class RequestError(EssentError):
    """A request that is refused.

    Args:
        status: of HTTP, as OpenAI's API has it; TEI's answers have 422 where this has 400, but for those of `TEI_400`.
        message: says what came in, what is allowed, and the fix; never a text of the request.
        param: the field at fault.
        code: a word for programs.
        retry_after: seconds after which the same request may succeed.
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    def headers(self) -> dict[str, str]:
        """`retry-after` in whole seconds, and for OpenAI's clients in milliseconds."""
        if self.retry_after is None:
            return {}
        return {
            "retry-after": str(max(1, round(self.retry_after))),
            "retry-after-ms": str(round(1000 * self.retry_after)),
        }

    def openai(self) -> tuple[int, dict[str, Any]]:
        """Status and body for OpenAI's clients, and for essent's own paths."""
        kind = KINDS.get(self.status, KINDS[500])[0]
        return self.status, {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def tei(self) -> tuple[int, dict[str, Any]]:
        """Status and body for TEI's clients."""
        if self.code in TEI_400:
            return 400, {"error": self.message, "error_type": TEI_400[self.code]}
        status = {400: 422, 404: 422, 500: 424}.get(self.status, self.status)
        return status, {"error": self.message, "error_type": KINDS.get(status, KINDS[500])[1]}


def overloaded(retry_after: float, what: str) -> RequestError:
    """Too much waits already."""
    return RequestError(
        429, f"{what} Try again in {max(1, round(retry_after))} s.", code="overloaded", retry_after=retry_after
    )


def unhealthy(why: str, retry_after: float = 2.0) -> RequestError:
    """The engine is not there."""
    return RequestError(503, why, code="engine_unavailable", retry_after=retry_after)
