"""The process: uvicorn, and what SIGTERM means to an agent."""

from __future__ import annotations

import asyncio
import os
import sys
from types import FrameType
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI

from vystak_turns_agent.app import Agent

_FORCED_EXIT_CODE: Final = 1
_LINGERING_CONNECTIONS_S: Final = 2


class AgentServer(uvicorn.Server):
    """A server that lets its runs finish their steps before it closes anything (R12).

    uvicorn waits for open connections before it ends the application, and a run's stream is an
    open connection: so the runs are drained first, at the signal itself.
    """

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                log_level="warning",
                lifespan="on",
                timeout_graceful_shutdown=_LINGERING_CONNECTIONS_S,
            )
        )
        self._agent: Agent = app.state.agent
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Serve until a signal, then drain and return."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop; at the second signal exit at once, which is no worse than a kill."""
        if self._loop is None or self._drain is not None or self.should_exit:
            _exit_now()
        else:
            self._loop.call_soon_threadsafe(self._begin_drain, sig)

    def _begin_drain(self, sig: int) -> None:
        if self._drain is None:
            structlog.get_logger("vystak_turns_agent").info("draining", signal=sig)
            self._drain = asyncio.ensure_future(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        try:
            await asyncio.wait_for(self._agent.drain(), self._agent.settings.grace_s)
        except TimeoutError:
            structlog.get_logger("vystak_turns_agent").warning("grace time is over")
            _exit_now()
        self.should_exit = True


def _exit_now() -> None:
    """Leave without waiting for threads; what is committed stays, the rest will be re-driven."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_FORCED_EXIT_CODE)
