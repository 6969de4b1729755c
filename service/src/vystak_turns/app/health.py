"""Is the agent there? One watcher an agent, shared by all of its turns."""

from __future__ import annotations

import asyncio

import structlog

from vystak_turns.app.limits import Limits
from vystak_turns.app.pauses import Pauses
from vystak_turns.ports import Agent, Clock, Ids

_log = structlog.get_logger(__name__)


class AgentHealth:
    """Lets many drivers wait for one agent while a single loop asks its `/healthz`.

    An agent counts as healthy until somebody loses a stream or gets no answer (`suspect`). The
    watcher never gives up (R9); its pauses are short, since a turn's recovery waits for them.
    """

    def __init__(self, name: str, agent: Agent, clock: Clock, ids: Ids, limits: Limits) -> None:
        self._name = name
        self._agent = agent
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._healthy = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    def suspect(self) -> None:
        """Tell that the agent did not answer, or that a stream of it broke."""
        self._healthy.clear()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the agent is healthy; with a limit, tell whether it became so in time."""
        if self._healthy.is_set():
            return True
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch(), name=f"health of {self._name}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._healthy.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    async def _watch(self) -> None:
        pauses = Pauses(
            self._clock,
            self._ids,
            first_s=self._limits.retry_first_s,
            longest_s=self._limits.health_poll_max_s,
        )
        told = False
        while not await self._agent.healthy():
            if not told:
                _log.warning("agent is not healthy, waiting for it", agent=self._name)
                told = True
            await pauses.take()
        if told:
            _log.info("agent is healthy again", agent=self._name)
        self._healthy.set()
