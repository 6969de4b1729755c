"""How long a turn's readers have heard nothing: the reason for a keep-alive event."""

from __future__ import annotations

from vystak_turns.ports import Clock


class Silence:
    """Measured from the last append of this driver; `limit_s` 0: it may last for ever."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self.limit_s = limit_s
        self._since_s = clock.now_s()

    def broken(self) -> None:
        """Readers have heard something."""
        if self.limit_s:
            self._since_s = self._clock.now_s()

    def too_long(self) -> bool:
        """Whether it is time to say that the turn lives."""
        return bool(self.limit_s) and self._clock.now_s() - self._since_s >= self.limit_s
