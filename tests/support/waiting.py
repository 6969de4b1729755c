"""Bounded waits for what other processes leave behind where we can see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

PATIENCE_S = 30.0
TICK_S = 0.01


async def ticks(what: str, within_s: float = PATIENCE_S) -> AsyncIterator[None]:
    """Yield again and again, so that the caller can look; fail when it looked for too long.

    Files and other processes have no events to wait on.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while loop.time() < deadline_s:
        yield
        tick = asyncio.Event()
        loop.call_later(TICK_S, tick.set)
        await tick.wait()
    raise AssertionError(f"{what}: not within {within_s:g} s")


async def until(condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait until the condition holds."""
    async for _ in ticks(what, within_s):
        if condition():
            return
