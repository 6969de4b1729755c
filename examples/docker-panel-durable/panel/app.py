"""The application: its one page, its routes, and what lives as long as it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Depends, FastAPI, HTTPException, Request, status
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from panel.access import Access, SecureHeaders
from panel.routes import Routes
from panel.settings import Settings
from panel.turns import Turns
from vystak_turns_client.persister_sqlite import SqliteStorage

STATIC = Path(__file__).parent / "static"


def create_app(settings: Settings, closing: asyncio.Event) -> FastAPI:
    """Return the panel; its event streams end once `closing` is set."""
    storage = SqliteStorage(settings.db, time.time)
    turns = Turns(settings, storage)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with storage, turns.connected():
            yield

    app = FastAPI(title="panel", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(SecureHeaders)
    access = Access(settings.token)
    _add_page(app, access)
    _add_health(app, turns)
    routes = Routes(settings, storage, turns, closing)
    app.include_router(routes.router(), prefix="/api", dependencies=[Depends(access.check)])
    app.mount("/static", StaticFiles(directory=STATIC))
    return app


def _add_page(app: FastAPI, access: Access) -> None:
    @app.get("/")
    async def page(request: Request, token: str | None = None) -> Response:
        if token is not None:
            return access.sign_in(token)
        access.check(request)
        return FileResponse(STATIC / "index.html")


def _add_health(app: FastAPI, turns: Turns) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        if not turns.is_connected:
            words = "the broker has not been reached yet"
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, words)
        return {"status": "ok"}
