from __future__ import annotations

from vystak_turns.app.silence import Silence


class StoppedClock:
    """Shows what it was set to."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s

    async def sleep(self, _delay_s: float) -> None:
        raise AssertionError("nobody waits here")


def test_silence_is_too_long_after_its_limit_and_not_once_it_was_broken() -> None:
    clock = StoppedClock()
    silence = Silence(clock, limit_s=30)
    assert not silence.too_long()

    clock.time_s += 30
    assert silence.too_long()

    silence.broken()
    assert not silence.too_long()


def test_without_a_limit_silence_is_never_too_long() -> None:
    clock = StoppedClock()
    silence = Silence(clock, limit_s=0)

    clock.time_s += 1_000_000

    assert not silence.too_long()
