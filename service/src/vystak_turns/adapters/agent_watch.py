"""Whether the agents are there: for `/readyz` and the log alone, nothing is decided by it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from vystak_turns.ports import Agent, Clock

_log = structlog.get_logger(__name__)

ABSENT_POLL_S: Final = 1.0
PRESENT_POLL_S: Final = 5.0


class AgentWatch:
    """Asks every agent's `/healthz` again and again, and tells when the answer changes."""

    def __init__(self, agents: Mapping[str, Agent], clock: Clock) -> None:
        self._agents = agents
        self._clock = clock
        self._present: dict[str, bool] = {}

    def present(self, agent: str) -> bool | None:
        """Whether the agent answered when it was asked last; `None`: not asked yet."""
        return self._present.get(agent)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, agent in self._agents.items():
                group.create_task(self._watch(name, agent))

    async def _watch(self, name: str, agent: Agent) -> None:
        while True:
            present = await agent.healthy()
            before, self._present[name] = self._present.get(name), present
            if present != before:
                self._tell(name, present=present)
            await self._clock.sleep(PRESENT_POLL_S if present else ABSENT_POLL_S)

    def _tell(self, name: str, *, present: bool) -> None:
        if present:
            _log.info("agent is there", agent=name)
        else:
            _log.warning("agent does not answer /healthz: its turns wait", agent=name)
