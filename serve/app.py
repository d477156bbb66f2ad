"""The HTTP gateway: OpenAI's API over an engine, where the model's name is a role."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from flywheel.errors import FlywheelError

from .gateway import Gateway, failure
from .guard import Guard
from .protocol import ChatRequest, TextRequest, error


def create_app(gateway: Gateway, token: str = "", request_bytes: int = 8 << 20) -> FastAPI:
    """The gateway over HTTP.

    Args:
        token: clients must send it as a bearer token, if not empty.
        request_bytes: largest body that is read.
    """
    app = FastAPI(title="Flywheel", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    refused = gateway.metrics.refused
    app.add_middleware(Guard, token=token, most=request_bytes, refused=lambda status: refused("", status))
    app.include_router(_completions(gateway))
    app.include_router(_information(gateway))
    app.add_exception_handler(RequestValidationError, _counted(_invalid, gateway))
    app.add_exception_handler(HTTPException, _counted(_refused, gateway))
    app.add_exception_handler(404, _unknown_path)
    app.add_exception_handler(405, _wrong_method)
    return app


def _completions(gateway: Gateway) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        return await gateway.answer(body, request)

    @router.post("/v1/completions")
    async def complete(body: TextRequest, request: Request) -> Response:
        return await gateway.answer(body, request)

    return router


def _information(gateway: Gateway) -> APIRouter:
    router = APIRouter()
    created = int(time.time())

    @router.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(gateway.metrics.text(), media_type="text/plain; version=0.0.4")

    @router.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": gateway.roster.described(created)})

    @router.get("/v1/models/{name}")
    async def model(name: str) -> Response:
        found = [entry for entry in gateway.roster.described(created) if entry["id"] == name]
        return JSONResponse(found[0]) if found else error(404, f"no model {name!r}", "model_not_found", "model")

    @router.post("/admin/reload")
    async def reload() -> Response:
        try:
            return JSONResponse(await asyncio.to_thread(gateway.roster.reload))
        except FlywheelError as problem:
            return failure(problem)

    return router


def _counted(
    handler: Callable[[Request, Any], Awaitable[Response]], gateway: Gateway
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """A handler whose answers stand in the metrics: what never reached a role."""

    async def counted(request: Request, problem: Exception) -> Response:
        response = await handler(request, problem)
        gateway.metrics.refused("", response.status_code)
        return response

    return counted


async def _invalid(request: Request, problem: RequestValidationError) -> Response:
    detail = problem.errors()[0]
    if detail["type"] == "json_invalid":
        return error(400, "the body is not JSON", "invalid_request")
    if detail["loc"] == ("body",) and not request.headers.get("content-type", "").startswith("application/json"):
        return error(400, "the body must be JSON, sent with Content-Type: application/json", "invalid_request")
    field = ".".join(str(part) for part in detail["loc"] if part != "body")
    text = str(detail["msg"]).removeprefix("Value error, ")
    return error(400, f"{field}: {text}" if field else text, "invalid_request", field or None)


async def _refused(request: Request, problem: HTTPException) -> Response:
    return error(problem.status_code, str(problem.detail), "invalid_request")


async def _unknown_path(request: Request, problem: Exception) -> Response:
    return error(404, f"there is no {request.method} {request.url.path}", "not_found")


async def _wrong_method(request: Request, problem: Exception) -> Response:
    return error(405, f"{request.url.path} does not take {request.method}", "method_not_allowed")
