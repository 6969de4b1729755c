"""An asyncio loop whose time jumps: pauses cost nothing, and a run is the same every time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class DeadlockError(Exception):
    """Every task waits, and no timer will ever wake one."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the clock to the next timer. Nothing real is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            message = "every task waits and nothing will wake one"
            raise DeadlockError(message)
        if timeout > 0:
            self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop without threads, sockets or real time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now_s


def run_virtually(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
