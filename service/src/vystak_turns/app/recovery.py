"""Reads where a turn stands: its log's ends, its boundaries, and the agent's view of its thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import structlog

from vystak_turns.app.health import AgentHealth
from vystak_turns.app.world import World
from vystak_turns.core.findings import AgentView, Findings, Tail, Terminal
from vystak_turns.core.turn import Boundary, Turn
from vystak_turns.ports import AgentSilentError, LogUnavailableError

_logger = structlog.get_logger(__name__)
_T = TypeVar("_T")

Announce: TypeAlias = Callable[[str | None], None]


@dataclass(frozen=True, slots=True)
class Ends:
    """What a driver knows of the log before it writes."""

    tail: Tail | None
    boundaries: tuple[Boundary, ...]


NOTHING_READ = Ends(tail=None, boundaries=())
"""What the first dispatch starts from: nobody has written yet."""


class Scout:
    """Asks log and agent, and waits for either as long as it takes (R9).

    The log comes first: a terminal event there is final, whatever the agent says. The log is read
    again once the agent has answered, if that took a wait.
    """

    def __init__(self, world: World, idle: Callable[[], Awaitable[None]]) -> None:
        self._world = world
        self._idle = idle
        self._pauses = world.pauses()

    async def look(
        self, turn: Turn, caught_up: Boundary | None, announce: Announce
    ) -> tuple[Ends, Findings]:
        """Return the log's ends, and all that the probe table looks at."""
        announce("broker")
        tail = await self._patiently(self._world.log.tail, turn.stream_subject)
        view, waited_out = None, False
        if tail is None or not isinstance(tail.what, Terminal):
            announce("agent")
            view, waited_out = await self._ask_agent(turn)
            announce("broker")
            tail = await self._patiently(self._world.log.tail, turn.stream_subject)
        head_seq = await self._patiently(self._world.log.head_seq, turn.stream_subject)
        boundaries = await self._world.journal.boundaries(turn.turn_id)
        announce("step" if view is not None and view.active else None)
        findings = Findings(
            tail=tail,
            head_seq=head_seq,
            boundaries=boundaries,
            view=view,
            max_attempts=self._world.limits.max_attempts,
            caught_up=caught_up,
            waited_out=waited_out,
        )
        return Ends(tail, boundaries), findings

    async def ends(self, turn: Turn) -> Ends:
        """Read what a driver must know of the log before it writes."""
        tail = await self._patiently(self._world.log.tail, turn.stream_subject)
        return Ends(tail, await self._world.journal.boundaries(turn.turn_id))

    async def _ask_agent(self, turn: Turn) -> tuple[AgentView | None, bool]:
        """Return the agent's view, and whether a turn at the cap waited long enough for it."""
        limits, health = self._world.limits, self._world.health[turn.agent]
        at_cap = turn.attempts >= limits.max_attempts and not turn.free_claim
        if not await self._wait_healthy(health, limits.cap_wait_s if at_cap else None):
            return None, True
        try:
            view = await self._world.agents[turn.agent].view(turn.thread_id, turn.turn_id)
        except AgentSilentError as error:
            _logger.info("agent did not answer", turn_id=turn.turn_id, error=str(error))
            health.suspect()
            return None, False
        return view, False

    async def _wait_healthy(self, health: AgentHealth, longest_s: float | None) -> bool:
        """Wait for the agent; while it is away, readers are told now and then that the turn lives.

        `longest_s`: give up after so many seconds; `None`: never.
        """
        keepalive_s = self._world.limits.keepalive_s or None
        left_s = longest_s
        while True:
            bounds = [s for s in (keepalive_s, left_s) if s is not None]
            slice_s = min(bounds) if bounds else None
            if await health.wait(slice_s):
                return True
            if left_s is not None and slice_s is not None:
                left_s -= slice_s
                if left_s <= 0:
                    return False
            await self._idle()

    async def _patiently(self, read: Callable[[str], Awaitable[_T]], subject: str) -> _T:
        told = False
        while True:
            try:
                result = await read(subject)
            except LogUnavailableError as error:
                if not told:
                    _logger.warning("log unavailable", subject=subject, error=str(error))
                    told = True
                await self._pauses.take()
            else:
                self._pauses.reset()
                return result
