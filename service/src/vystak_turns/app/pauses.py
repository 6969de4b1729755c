"""Pauses between tries: growing, bounded, with jitter so that a crowd does not move in step."""

from __future__ import annotations

from vystak_turns.ports import Clock, Ids


class Pauses:
    """The pauses of one loop; `reset` when the loop got on."""

    def __init__(self, clock: Clock, ids: Ids, *, first_s: float, longest_s: float) -> None:
        self._clock = clock
        self._ids = ids
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    async def take(self) -> None:
        """Pause between half and the whole of the present length, then double it."""
        length_s = self._next_s
        self._next_s = min(length_s * 2, self._longest_s)
        await self._clock.sleep(length_s * (0.5 + self._ids.jitter() / 2))

    def reset(self) -> None:
        """Begin with the first length again."""
        self._next_s = self._first_s
