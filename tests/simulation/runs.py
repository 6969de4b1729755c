"""One run of one flow under one plan of deaths, and all plans of a flow."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.checkers import violations
from tests.simulation.crashes import Crash, Victim, When
from tests.simulation.virtual_time import DeadlockError, run_virtually
from tests.simulation.world import Caller, SimulatedWorld

_DEADLINE_S = 300.0
"""Virtual seconds after which a turn that has not ended counts as lost."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What the caller asks for: one or two turns on a thread, and how they must end."""

    name: str
    inputs: tuple[str, ...]
    status: str = "done"


FLOWS = (
    Flow("plain tools", ("tools:2",)),
    Flow("second turn of a thread", ("hello", "tools:1")),
    Flow("approval before a tool", ("approval",)),
    Flow("text before a question", ("ask",)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed: broken rules, and the names of all effects in order."""

    flow: Flow
    plan: tuple[Crash, ...]
    violations: tuple[str, ...]
    effects: tuple[str, ...]

    def __str__(self) -> str:
        plan = ",".join(str(c) for c in self.plan) or "no crash"
        return f"{self.flow.name} [{plan}]: {'; '.join(self.violations) or 'ok'}"


def run(flow: Flow, plan: tuple[Crash, ...] = ()) -> Outcome:
    """Run a flow; the same flow and plan give the same run."""
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        return run_virtually(_run(flow, plan, Path(folder) / "turns.db"))


def _memory_folder() -> str | None:
    """The journal's commits are real; a disk in memory only makes them fast."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


async def _run(flow: Flow, plan: tuple[Crash, ...], journal: Path) -> Outcome:
    world = SimulatedWorld(journal, plan)
    found: list[str] = []
    try:
        await world.start()
        async with asyncio.timeout(_DEADLINE_S):
            await _take_turns(world, flow, found)
    except (TimeoutError, DeadlockError) as error:
        found.append(f"R9 a turn did not end: {error!r}")
    except Exception as error:  # noqa: BLE001 - a run reports whatever went wrong in it
        found.append(f"the run broke: {error!r}")
    finally:
        await world.close()
    return Outcome(flow, plan, tuple(found), tuple(world.crashes.names))


async def _take_turns(world: SimulatedWorld, flow: Flow, found: list[str]) -> None:
    previous: str | None = None
    for number, text in enumerate(flow.inputs):
        caller = Caller(world, f"turn{number}", text)
        await caller.see_it_through(previous)
        found.extend(violations(world.history(caller, flow.status)))
        previous = caller.thread_id


def single_crashes(flow: Flow) -> Iterator[tuple[Crash, ...]]:
    """Every way to die once: service or agent, before and after each effect, or too late."""
    effects = run(flow).effects
    for crash in _crashes_at(effects, 1):
        yield (crash,)


def double_crashes(flow: Flow, first: Crash) -> Iterator[tuple[Crash, ...]]:
    """Every way to die once more after a given first death."""
    effects = run(flow, (first,)).effects
    for second in _crashes_at(effects, first.effect + 1):
        yield (first, second)


def _crashes_at(effects: tuple[str, ...], start: int) -> Iterator[Crash]:
    for number in range(start, len(effects) + 1):
        for victim in Victim:
            yield Crash(number, When.BEFORE, victim)
            yield Crash(number, When.AFTER, victim)
        if effects[number - 1] == "log.append":
            yield Crash(number, When.LATE, Victim.SERVICE)
