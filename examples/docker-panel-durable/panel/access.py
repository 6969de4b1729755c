"""Who may use the panel: whoever opened the address with the token, from this very page.

The token becomes a cookie that scripts cannot read. Requests that change something must besides
come from the panel's own origin, because other servers of the same machine share its cookies.
"""

from __future__ import annotations

import secrets

from fastapi import HTTPException, Request, status
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "vystak_panel"
SAFE_METHODS = frozenset({"GET", "HEAD"})

POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    # No string ever becomes HTML or script, not even by a mistake of ours.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
HEADERS = {
    "content-security-policy": "; ".join(POLICY),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Access:
    """The one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def check(self, request: Request) -> None:
        """Let a request pass; raises HTTPException 401 or 403."""
        if not self.is_known(request):
            words = "open the address that the panel printed when it started"
            raise HTTPException(status.HTTP_401_UNAUTHORIZED, words)
        origin = request.headers.get("origin")
        own = f"{request.url.scheme}://{request.headers.get('host')}"
        if request.method not in SAFE_METHODS and origin not in {None, own}:
            raise HTTPException(status.HTTP_403_FORBIDDEN, "the request comes from another page")

    def is_known(self, request: Request) -> bool:
        """Whether the browser has the cookie, or a program the bearer token."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")
        return self._is_right(given)

    def sign_in(self, token: str) -> Response:
        """Turn the token of the address into the cookie, and take it out of the address."""
        if not self._is_right(token):
            raise HTTPException(status.HTTP_401_UNAUTHORIZED, "the token in the address is wrong")
        answer = RedirectResponse("/", status.HTTP_303_SEE_OTHER)
        answer.set_cookie(COOKIE, self._token, httponly=True, samesite="lax", max_age=30 * 86400)
        return answer

    def _is_right(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


class SecureHeaders:
    """Adds the headers to every answer; written for ASGI, so that streams are not held back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)
