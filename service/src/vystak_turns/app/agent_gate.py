"""Who may run on an agent: all side by side, or one turn alone on its last attempt (R9).

A turn that kills its agent takes every other run on it along, and each of them loses an attempt.
So the last attempt before the cap is made alone: if the agent dies then, it is known whose fault
it was, and the bystanders are driven on. The others are drained, not cut: they finish their step
in flight and go on afterwards without having spent anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

Drain: TypeAlias = Callable[[], Awaitable[object]]


class Visit:
    """One run's stay; `share` lets the others in as soon as it has made progress."""

    def __init__(self, gate: AgentGate, drain: Drain, *, alone: bool) -> None:
        self._gate = gate
        self.drain = drain
        self.alone = alone

    def share(self) -> None:
        """Stop being alone."""
        if self.alone:
            self.alone = False
            self._gate.tell()


class AgentGate:
    """The gate of one agent. Whoever wants to be alone comes before newcomers."""

    def __init__(self, ask_again_s: float) -> None:
        self._ask_again_s = ask_again_s
        self._inside: set[Visit] = set()
        self._wanting = 0
        self._changed = asyncio.Event()

    def is_open(self, *, alone: bool) -> bool:
        """Whether a run could begin now."""
        if alone:
            return not self._inside
        return not self._wanting and not any(visit.alone for visit in self._inside)

    @asynccontextmanager
    async def enter(self, drain: Drain, *, alone: bool) -> AsyncIterator[Visit]:
        """Stay inside while a run goes on; `drain` asks that run to stop after its step."""
        await (self._clear() if alone else self._until_open())
        visit = Visit(self, drain, alone=alone)
        self._inside.add(visit)
        try:
            yield visit
        finally:
            self._inside.discard(visit)
            self.tell()

    def tell(self) -> None:
        """Wake whoever waits: something has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until_open(self) -> None:
        while not self.is_open(alone=False):
            await self._changed.wait()

    async def _clear(self) -> None:
        """Have the others stop after their step; ask again, since a call may be under way."""
        self._wanting += 1
        try:
            while self._inside:
                changed = self._changed
                await asyncio.gather(*(visit.drain() for visit in self._inside))
                try:
                    async with asyncio.timeout(self._ask_again_s):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._wanting -= 1
            self.tell()
