"""Clock, ids and threads of the real world."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class SystemClock:
    """`ports.Clock` of this machine."""

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def sleep(self, delay_s: float) -> None:
        """Pause."""
        await asyncio.sleep(delay_s)


class RandomIds:
    """`ports.Ids` from the system's randomness."""

    def thread_id(self) -> str:
        """Return `resp_`, 12 hex digits of milliseconds since the epoch and 12 random ones.

        Ids ordered by time keep an index's new entries side by side.
        """
        return f"resp_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(6)}"

    def jitter(self) -> float:
        """Return a random number from 0 to 1."""
        return random.random()  # noqa: S311 - spreads retries, guards nothing


class OneThread:
    """Runs work on one thread of its own, in the order of the calls."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def __call__(self, work: Callable[[], T], /) -> T:
        """Run `work` on the thread and return what it returns."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Let the thread end once its work is done."""
        self._executor.shutdown(wait=False)
