"""Uvicorn inside our own event loop, on a socket that is already bound, without its signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

STOP_TIMEOUT_S = 2


class PortTakenError(Exception):
    """The HTTP port cannot be listened on."""


class HttpServer:
    """Serves an application until `stop`."""

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> int:
        """Listen and return the port's number.

        Raises:
            PortTakenError: somebody else listens there, or the address is not ours.

        """
        listening = self._bound()
        self._task = asyncio.create_task(self._server.serve([listening]), name="http")
        number: int = listening.getsockname()[1]
        return number

    async def stop(self) -> None:
        """Finish the requests in hand and close the port."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    def _bound(self) -> socket.socket:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            bound = socket.socket(family, kind, protocol)
        except OSError as error:
            raise PortTakenError(f"{self._host}: {error}") from None
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError as error:
            bound.close()
            raise PortTakenError(f"{self._host}:{self._port}: {error.strerror}") from None
        return bound


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs us."""
        yield
