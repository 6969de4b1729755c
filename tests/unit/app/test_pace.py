"""A driver probes at once, unless an agent ends its streams as fast as it is asked (R9)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from vystak_turns.app.driver import Driver
from vystak_turns.app.limits import Limits
from vystak_turns.app.pauses import Pauses
from vystak_turns.core.effects import Pace


class CountingClock:
    """Time moves only when told; pauses are noted."""

    def __init__(self) -> None:
        self.time_s = 1000.0
        self.pauses: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    async def sleep(self, delay_s: float) -> None:
        self.pauses.append(delay_s)


class NoJitter:
    """Half of each pause."""

    def thread_id(self) -> str:
        raise AssertionError("nobody needs one here")

    def jitter(self) -> float:
        return 0.0


def driver_at(clock: CountingClock) -> Any:
    limits = Limits()
    world = SimpleNamespace(
        clock=clock,
        limits=limits,
        pauses=lambda: Pauses(clock, NoJitter(), first_s=0.05, longest_s=2.0),
    )
    return Driver(cast("Any", world), "t1")


async def test_the_probes_that_a_park_takes_are_not_held_up() -> None:
    clock = CountingClock()
    driver = driver_at(clock)

    for _ in range(4):
        await driver._keep_pace(Pace.NOW)

    assert not clock.pauses


async def test_hasty_probes_are_paced_more_and_more() -> None:
    clock = CountingClock()
    driver = driver_at(clock)

    for _ in range(20):
        await driver._keep_pace(Pace.NOW)

    assert len(clock.pauses) == 16
    assert clock.pauses == sorted(clock.pauses)
    assert clock.pauses[-1] == 1.0


async def test_a_run_that_lasted_is_probed_at_once_again() -> None:
    clock = CountingClock()
    driver = driver_at(clock)
    for _ in range(10):
        await driver._keep_pace(Pace.NOW)
    held_up = len(clock.pauses)

    clock.time_s += 60
    await driver._keep_pace(Pace.NOW)

    assert len(clock.pauses) == held_up
