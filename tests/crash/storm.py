"""The storm: what is killed, stopped, cut and stalled, in which order. One seed, one storm."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from tests.crash.processes import AGENTS, NATS, PARTS, TURNS, Processes


class Kind(StrEnum):
    """What may happen to a part, or to turn control's connection with it."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    PAUSE = "SIGSTOP, SIGCONT"
    CUT = "connections cut"
    STALL = "connections stalled"
    REFUSE = "connections refused"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that happens, `gap_s` after the one before began.

    `length_s` is how long a part is away, paused, stalled or refused.
    """

    kind: Kind
    parts: tuple[str, ...]
    length_s: float = 0.0
    gap_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Outage:
    """What a trouble meant for a part, in seconds since 1970; `there_at`: it answered again."""

    part: str
    kind: Kind
    from_s: float
    there_at: float


_GROUPS: Final = (
    *((agent,) for agent in AGENTS for _ in range(2)),
    *((TURNS,) for _ in range(6)),
    *((NATS,) for _ in range(3)),
    *((TURNS, agent) for agent in AGENTS),
    (NATS, TURNS),
    (NATS, "steps"),
    PARTS,
)
_PROCESS_KINDS: Final = (Kind.KILL,) * 5 + (Kind.TERM,) * 2 + (Kind.PAUSE,)
_NETWORK_KINDS: Final = (Kind.CUT, Kind.CUT, Kind.STALL, Kind.REFUSE)
_NETWORK_SHARE: Final = 0.25
# Now and then the wind drops, so that what was hit can be seen to get on.
_LULL_SHARE: Final = 0.08
_LULL_S: Final = 8.0
_SIDE_BY_SIDE: Final = 3
_LONGEST_S: Final = {
    Kind.KILL: 1.5,
    Kind.TERM: 1.0,
    Kind.PAUSE: 9.0,
    Kind.CUT: 0.0,
    Kind.STALL: 8.0,
    Kind.REFUSE: 3.0,
}


def troubles(seed: int, mean_gap_s: float) -> Iterator[Trouble]:
    """Yield what happens, for ever; the same seed gives the same."""
    chance = random.Random(f"storm {seed}")
    while True:
        if chance.random() < _NETWORK_SHARE:
            kind = chance.choice(_NETWORK_KINDS)
            parts: tuple[str, ...] = (chance.choice((NATS, *AGENTS)),)
        else:
            kind, parts = chance.choice(_PROCESS_KINDS), chance.choice(_GROUPS)
        length_s = chance.random() ** 2 * _LONGEST_S[kind]
        lull_s = _LULL_S if chance.random() < _LULL_SHARE else 0.0
        yield Trouble(kind, parts, length_s, chance.expovariate(1 / mean_gap_s) + lull_s)


@dataclass(slots=True)
class Storm:
    """Makes trouble as planned, until it is told to end; then everything is there again."""

    processes: Processes
    plan: Iterable[Trouble]
    say: Callable[[str], None]
    outages: list[Outage] = field(default_factory=list)
    counts: Counter[tuple[str, Kind]] = field(default_factory=Counter)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    def end(self) -> None:
        """Begin no more trouble."""
        self._over.set()

    async def rage(self) -> None:
        """Let things happen, at most a few at the same time and one to a part."""
        self._locks = {part: asyncio.Lock() for part in PARTS}
        few = asyncio.Semaphore(_SIDE_BY_SIDE)
        async with asyncio.TaskGroup() as group:
            for trouble in self.plan:
                await self._wait(trouble.gap_s)
                await few.acquire()
                if self._over.is_set():
                    return
                task = group.create_task(self._suffer(trouble))
                task.add_done_callback(lambda _: few.release())

    async def _suffer(self, trouble: Trouble) -> None:
        # Always in the same order, so that two troubles never wait for each other.
        parts = sorted(trouble.parts)
        for part in parts:
            await self._locks[part].acquire()
        try:
            self.say(f"{trouble.kind} {'+'.join(parts)} {trouble.length_s:.2f} s")
            await asyncio.gather(*(self._suffer_one(trouble, part) for part in parts))
        finally:
            for part in parts:
                self._locks[part].release()

    async def _suffer_one(self, trouble: Trouble, part: str) -> None:
        self.counts[part, trouble.kind] += 1
        from_s = time.time()
        await self._strike(trouble, part)
        if part == NATS:
            # Cut off from the broker is turn control, until it has found its way back.
            await self.processes.until_there(TURNS)
        self.outages.append(Outage(part, trouble.kind, from_s, time.time()))

    async def _strike(self, trouble: Trouble, part: str) -> None:
        match trouble.kind:
            case Kind.KILL:
                await self._restart(part, signal.SIGKILL, trouble.length_s)
            case Kind.TERM:
                await self._restart(part, signal.SIGTERM, trouble.length_s)
            case Kind.PAUSE:
                self.processes.pause(part)
                await self._wait(trouble.length_s)
                self.processes.go_on(part)
                await self.processes.until_there(part)
            case Kind.CUT:
                self.processes.proxies[part].cut()
            case Kind.STALL:
                self.processes.proxies[part].stall(stalled=True)
                await self._wait(trouble.length_s)
                self.processes.proxies[part].stall(stalled=False)
            case Kind.REFUSE:
                self.processes.proxies[part].refuse(refusing=True)
                await self._wait(trouble.length_s)
                self.processes.proxies[part].refuse(refusing=False)
            case _:
                assert_never(trouble.kind)

    async def _restart(self, part: str, number: signal.Signals, away_s: float) -> None:
        await self.processes.end(part, number)
        await self._wait(away_s)
        await self.processes.start(part)

    async def _wait(self, length_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), length_s)
