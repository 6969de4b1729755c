"""Who dies when: every effect of service and agent is counted, and a plan names the deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum


class Victim(StrEnum):
    """A process that can be killed."""

    SERVICE = "service"
    AGENT = "agent"


class When(StrEnum):
    """Where in an effect the victim dies.

    `LATE` is for appends: the process dies before the broker has the message, which lands while
    the next process is already reading the log.
    """

    BEFORE = "before"
    AFTER = "after"
    LATE = "late"


@dataclass(frozen=True, slots=True, order=True)
class Crash:
    """One death: at the n-th effect of the run, counted from 1."""

    effect: int
    when: When
    victim: Victim

    def __str__(self) -> str:
        return f"{self.effect}:{self.when}:{self.victim}"


INCARNATION: ContextVar[tuple[Victim, int] | None] = ContextVar("incarnation", default=None)
"""Which life of which process the running task belongs to; `None`: the world outside."""


class Crashes:
    """Counts effects, and kills by plan: tasks of a dead life are cancelled and do no more."""

    def __init__(self, plan: tuple[Crash, ...], on_death: Callable[[Victim], None]) -> None:
        self._plan = {(c.effect, c.when): c.victim for c in plan}
        self._on_death = on_death
        self._tasks: dict[asyncio.Task[object], tuple[Victim, int]] = {}
        self.lives = {Victim.SERVICE: 0, Victim.AGENT: 0}
        self.deaths = {Victim.SERVICE: 0, Victim.AGENT: 0}
        self.alive = {Victim.SERVICE: False, Victim.AGENT: False}
        self.names: list[str] = []

    def task_factory(
        self, loop: asyncio.AbstractEventLoop, coro: object, **kwargs: object
    ) -> asyncio.Task[object]:
        """Make a task that belongs to the life of the task that made it."""
        task: asyncio.Task[object] = asyncio.Task(coro, loop=loop, **kwargs)  # type: ignore[arg-type]
        owner = INCARNATION.get()
        if owner is not None:
            self._tasks[task] = owner
            task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def begin_life(self, victim: Victim) -> None:
        """Mark the running context as a new life of `victim`."""
        self.lives[victim] += 1
        self.alive[victim] = True
        INCARNATION.set((victim, self.lives[victim]))

    def check_alive(self) -> None:
        """Stop a task of a dead life right here."""
        owner = INCARNATION.get()
        if owner is not None and owner != (owner[0], self._present_life(owner[0])):
            raise asyncio.CancelledError

    def before(self, name: str) -> bool:
        """Begin an effect; tell whether it is to land late although its process dies now."""
        self.check_alive()
        self.names.append(name)
        late = self._dies(When.LATE)
        if not late:
            self._dies(When.BEFORE)
            self.check_alive()
        return late

    def after(self) -> None:
        """End the effect begun last."""
        self._dies(When.AFTER)
        self.check_alive()

    def kill(self, victim: Victim) -> None:
        """Kill a process: no task of it does anything from now on."""
        if not self.alive[victim]:
            return
        self.alive[victim] = False
        self.deaths[victim] += 1
        present = asyncio.current_task()
        for task, owner in list(self._tasks.items()):
            if owner[0] is victim and task is not present:
                task.cancel()
        self._on_death(victim)

    def _present_life(self, victim: Victim) -> int:
        return self.lives[victim] if self.alive[victim] else -1

    def _dies(self, when: When) -> bool:
        victim = self._plan.pop((len(self.names), when), None)
        if victim is None:
            return False
        self.kill(victim)
        return True
