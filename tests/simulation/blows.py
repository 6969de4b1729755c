"""What befalls whom, and when: every effect of service and agents is counted, a plan names blows.

A blow strikes at the n-th effect of a run, before or after it: processes die, are stopped in order
or frozen for a while; connections break; appends time out; the log loses messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias


class Victim(StrEnum):
    """A process, or what lies between processes."""

    SERVICE = "service"
    AGENT = "agent"
    OTHER = "other"  # the second agent
    LOG = "log"
    CALLER = "caller"


class When(StrEnum):
    """Where in an effect the blow strikes.

    `LATE` is for the death of a service at an append: it dies before the broker has the message,
    which lands while the next process is already reading the log.
    """

    BEFORE = "before"
    AFTER = "after"
    LATE = "late"


class Kind(StrEnum):
    """What happens to the victim."""

    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGTERM
    FREEZE = "freeze"  # SIGSTOP, and SIGCONT a while later; a new life has begun meanwhile
    PAUSE = "pause"  # SIGSTOP, and SIGCONT a while later; nobody took its place
    CUT = "cut"  # connections to an agent break
    HALF_OPEN = "half_open"  # connections to an agent stay open and bring nothing any more
    TROUBLE = "trouble"  # an agent answers the next calls with 503, 409, 404 or nonsense
    OUTAGE = "outage"  # nobody reaches the broker
    LANDED = "landed"  # the next append is stored, its acknowledgement is lost
    LANDED_LATE = "landed_late"  # the next append is stored long after its sender gave up
    LOST = "lost"  # the next append never arrives
    PURGE = "purge"  # the turn's subject is emptied
    DELETE = "delete"  # the stream is deleted and made anew
    CANCEL = "cancel"  # a caller cancels the first turn


@dataclass(frozen=True, slots=True, order=True)
class Blow:
    """One blow: at the n-th effect of the run, counted from 1; `size` is its length or number."""

    effect: int
    when: When
    victim: Victim
    kind: Kind = Kind.KILL
    size: int = 0

    def __str__(self) -> str:
        text = f"{self.effect}:{self.when}:{self.victim}:{self.kind}"
        return f"{text}:{self.size}" if self.size else text


_LATE_MS: Final = 14
"""After the next process has begun: while it reads the log."""

Plan: TypeAlias = tuple[Blow, ...]


def parse_plan(text: str) -> Plan:
    """Read a plan as `str` writes its blows, with commas between them."""
    return tuple(_parse(part) for part in text.split(",") if part)


def _parse(text: str) -> Blow:
    number, when, victim, kind, *size = text.split(":")
    return Blow(int(number), When(when), Victim(victim), Kind(kind), *map(int, size))


Life: TypeAlias = tuple[Victim, int]
LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
"""Which life of which process the running task belongs to; `None`: the world outside."""


class Blows:
    """Counts effects and strikes by plan; tasks of a dead life are cancelled and do no more."""

    def __init__(self, plan: Plan, strike: Callable[[Blow], None]) -> None:
        self._plan: dict[tuple[int, When], list[Blow]] = {}
        for blow in plan:
            self._plan.setdefault((blow.effect, blow.when), []).append(blow)
        self._strike = strike
        self._tasks: dict[asyncio.Task[Any], Life] = {}
        self._living: set[Life] = set()
        self._frozen: dict[Life, asyncio.Event] = {}
        self._lives = dict.fromkeys(Victim, 0)
        self.names: list[str] = []

    def task_factory(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any
    ) -> asyncio.Task[Any]:
        """Make a task that belongs to the life of the task that made it."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **kwargs)
        owner = LIFE.get()
        if owner is not None:
            self._tasks[task] = owner
            task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def begin_life(self, victim: Victim) -> Life:
        """Mark the running context as a new life of `victim`."""
        self._lives[victim] += 1
        life = (victim, self._lives[victim])
        self._living.add(life)
        LIFE.set(life)
        return life

    def is_alive(self, life: Life) -> bool:
        """Whether the process still runs, or is frozen."""
        return life in self._living

    def check_alive(self) -> None:
        """Stop a task of a dead life right here."""
        owner = LIFE.get()
        if owner is not None and owner not in self._living:
            raise asyncio.CancelledError

    async def thawed(self) -> None:
        """Wait while the running task's process is frozen."""
        owner = LIFE.get()
        while owner is not None and owner in self._frozen:
            await self._frozen[owner].wait()
        self.check_alive()

    async def before(self, name: str) -> int:
        """Begin an effect; if it is to land although its process dies now, so many ms too late."""
        await self.thawed()
        self.names.append(name)
        late = self._struck(When.LATE)
        if late:
            return late[0].size or _LATE_MS
        self._struck(When.BEFORE)
        await self.thawed()
        return 0

    async def after(self) -> None:
        """End the effect begun last."""
        self._struck(When.AFTER)
        await self.thawed()

    def kill(self, life: Life) -> bool:
        """Kill a process: no task of it does anything from now on."""
        if life not in self._living:
            return False
        self._living.remove(life)
        present = asyncio.current_task()
        for task, owner in list(self._tasks.items()):
            if owner == life and task is not present:
                task.cancel()
        self.thaw(life)
        return True

    def freeze(self, life: Life) -> None:
        """Let no task of the process come past its next effect."""
        if life in self._living:
            self._frozen.setdefault(life, asyncio.Event())

    def thaw(self, life: Life) -> None:
        """Let the process go on."""
        event = self._frozen.pop(life, None)
        if event is not None:
            event.set()

    def is_frozen(self, life: Life) -> bool:
        """Whether the process is frozen."""
        return life in self._frozen

    def _struck(self, when: When) -> list[Blow]:
        blows = self._plan.pop((len(self.names), when), [])
        for blow in blows:
            self._strike(blow)
        return blows
