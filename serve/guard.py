"""Who may come in, and with how much: looked at before anything of a request is read."""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from .protocol import error

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware: 401 without the bearer token, 413 for a body that is too large, announced or not.

    Args:
        token: what clients must send; an empty one lets everybody in. `/health` is open to all.
        most: bytes of the largest body.
        refused: told the status of every request that does not come in.
    """

    def __init__(self, app: App, token: str, most: int, refused: Callable[[int], None]) -> None:
        self._app = app
        self._refused = refused
        self._expected = token.encode()
        self._most = most

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on, counting its body as it comes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        if not self._may_enter(scope["path"], headers.get(b"authorization", b"")):
            self._refused(401)
            text, reply = "the bearer token is missing or wrong", {"WWW-Authenticate": "Bearer"}
            await error(401, text, "invalid_api_key", headers=reply)(scope, receive, send)
        elif announced.isdigit() and int(announced) > self._most:
            self._refused(413)
            await error(413, self._too_large, "invalid_request")(scope, receive, send)
        else:
            await self._app(scope, self._counting(receive), send)

    def _may_enter(self, path: str, sent: bytes) -> bool:
        """Compared in constant time."""
        scheme, _, token = sent.partition(b" ")
        right = hmac.compare_digest(token.strip(), self._expected) and scheme.lower() == b"bearer"
        return not self._expected or path == "/health" or right

    def _counting(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise HTTPException(413, self._too_large)
            return message

        return counted

    @property
    def _too_large(self) -> str:
        return f"the request has more than {self._most} bytes"
