"""The only way to change a turn: apply a fact to the committed turn and commit the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import structlog

from vystak_turns.app.locks import KeyedLocks
from vystak_turns.app.pauses import Pauses
from vystak_turns.core.effects import Effect, StandDown
from vystak_turns.core.facts import EndWanted, Fact
from vystak_turns.core.transitions import step
from vystak_turns.core.turn import Intent, Json, Turn
from vystak_turns.ports import (
    BoundaryChange,
    Clock,
    Journal,
    JournalUnavailableError,
    NotOwnerError,
)

_logger = structlog.get_logger(__name__)


class UnknownTurnError(Exception):
    """The journal has no such turn."""


class Ledger:
    """Applies facts one after the other for each turn, side by side for different turns.

    Every change is computed from the committed turn and committed before anybody sees it, so a
    caller's fact (a decision) and a driver's fact can never overwrite each other.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._locks = KeyedLocks()

    async def apply(
        self, turn_id: str, fact: Fact, boundaries: BoundaryChange | None = None
    ) -> tuple[Turn, tuple[Effect, ...]]:
        """Commit what `fact` makes of the turn; return the turn and what is to be done.

        Raises:
            UnknownTurnError: no such turn.
            JournalUnavailableError: nothing was changed.

        """
        async with self.hold(turn_id):
            turn = await self._journal.get(turn_id)
            if turn is None:
                raise UnknownTurnError(turn_id)
            return await self.apply_held(turn, fact, boundaries)

    async def apply_patiently(
        self,
        turn_id: str,
        fact: Fact,
        pauses: Pauses,
        boundaries: BoundaryChange | None = None,
    ) -> tuple[Turn, tuple[Effect, ...]]:
        """Like `apply`, but wait for a journal that cannot be written now (a full disk).

        Raises:
            NotOwnerError: another process owns the journal; waiting would be in vain.

        """
        told = False
        while True:
            try:
                return await self.apply(turn_id, fact, boundaries)
            except NotOwnerError:
                raise
            except JournalUnavailableError as error:
                if not told:
                    _logger.warning("journal unavailable", turn_id=turn_id, error=str(error))
                    told = True
                await pauses.take()

    @asynccontextmanager
    async def hold(self, turn_id: str) -> AsyncIterator[None]:
        """Keep every other change of this turn out while the caller looks and decides."""
        async with self._locks.hold(turn_id):
            yield

    async def apply_held(
        self,
        turn: Turn,
        fact: Fact,
        boundaries: BoundaryChange | None = None,
    ) -> tuple[Turn, tuple[Effect, ...]]:
        """Like `apply`, for a caller that holds the turn and has just read it."""
        after, effects = step(turn, fact)
        if StandDown() in effects:
            return turn, effects
        if after != turn or boundaries is not None:
            after = replace(after, updated_at_s=self._clock.now_s())
            await _to_the_end(self._journal.save(after, boundaries))
        return after, effects

    async def create(self, turn: Turn, request: Json, supersede: Turn | None) -> Turn | None:
        """Commit a new turn, ending `supersede` in the same transaction (R13).

        The caller holds both turns. Returns the superseded turn as committed.
        """
        if supersede is None:
            await _to_the_end(self._journal.create(turn, request, None))
            return None
        from_now_on, _ = step(supersede, EndWanted(Intent.SUPERSEDED))
        from_now_on = replace(from_now_on, updated_at_s=self._clock.now_s())
        await _to_the_end(self._journal.create(turn, request, from_now_on))
        return from_now_on


async def _to_the_end(commit: Coroutine[Any, Any, None]) -> None:
    """Await a commit to its end, also when the caller is cancelled.

    A commit that was handed over happens; whoever takes the turn's lock next must see it.
    """
    committing = asyncio.create_task(commit)
    try:
        await asyncio.shield(committing)
    except asyncio.CancelledError:
        await asyncio.wait([committing])
        if not committing.cancelled():
            committing.exception()
        raise
