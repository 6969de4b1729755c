"""One run of one flow under one plan of blows, and all plans of a flow."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.blows import Blow, Kind, Plan, Victim, When
from tests.simulation.callers import Caller
from tests.simulation.checkers import violations
from tests.simulation.flows import FLOWS, Flow
from tests.simulation.virtual_time import DeadlockError, run_virtually
from tests.simulation.world import AGENTS, SimulatedWorld

_AFTERMATH_S: Final = 4.0
"""Virtual seconds in which a process that was frozen may still do harm."""
_HOUR_S: Final = 3600.0
_DEADLINE_S: Final = 600.0
"""Virtual seconds after which a turn that has not ended counts as lost."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed: broken rules, and the names of all effects in order."""

    flow: Flow
    plan: Plan
    violations: tuple[str, ...]
    effects: tuple[str, ...] = ()
    seed: int | None = None

    def __str__(self) -> str:
        plan = ",".join(str(blow) for blow in self.plan) or "no blow"
        return f"{self.flow.name} [{plan}]: {'; '.join(self.violations) or 'ok'}"


def run(flow: Flow, plan: Plan = (), seed: int = 0, *, deadline_s: float = _DEADLINE_S) -> Outcome:
    """Run a flow; the same flow, plan and seed give the same run."""
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        return run_virtually(_run(flow, plan, seed, Path(folder) / "turns.db", deadline_s))


def _memory_folder() -> str | None:
    """The journal's commits are real; a disk in memory only makes them fast."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


async def _run(flow: Flow, plan: Plan, seed: int, journal: Path, deadline_s: float) -> Outcome:
    world = SimulatedWorld(
        journal, plan, seed=seed, max_age_s=flow.max_age_s, keepalive_s=flow.keepalive_s
    )
    found: list[str] = []
    try:
        await world.start()
        async with asyncio.timeout(deadline_s):
            await _take_turns(world, flow, found)
    except (TimeoutError, DeadlockError) as error:
        found.append(f"R9 a turn did not end: {error!r}")
    except Exception as error:  # noqa: BLE001 - a run reports whatever went wrong in it
        found.append(f"the run broke: {error!r}")
    finally:
        await world.close()
    return Outcome(flow, plan, tuple(found), tuple(world.blows.names))


async def _take_turns(world: SimulatedWorld, flow: Flow, found: list[str]) -> None:
    callers: list[Caller] = []
    for number, ask in enumerate(flow.asks):
        before = callers[-1] if callers else None
        callers.append(Caller(world, ask, f"turn{number}", before))
        if ask.kills_caller:
            world.agents[ask.agent].poisoned.add(f"turn{number}")
    # A log that loses its start is shown again, which takes a claim; a poison takes some of its
    # neighbours'.
    world.claims_unprovoked = 3 if flow.poison else int(flow.max_age_s < _HOUR_S)
    world.on_cancel = callers[0].cancel
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(caller.see_it_through())
    await asyncio.sleep(_AFTERMATH_S)
    for caller in callers:
        await caller.look_again()
    for caller in callers:
        found.extend(f"{caller.turn_id}: {words}" for words in violations(caller.history()))


def single_deaths(flow: Flow, effects: tuple[str, ...]) -> Iterator[Plan]:
    """Every way to die once: service or agent, before and after each effect, or too late."""
    for blow in _deaths_at(flow, effects, 1):
        yield (blow,)


def double_deaths(flow: Flow, first: Plan) -> Iterator[Plan]:
    """Every way to die once more after a given first blow."""
    effects = run(flow, first).effects
    for second in _deaths_at(flow, effects, first[-1].effect + 1):
        yield (*first, second)


def single_blows(flow: Flow, effects: tuple[str, ...], kind: Kind) -> Iterator[Plan]:
    """Every way in which one blow of a kind can strike once."""
    size = _SIZES.get(kind, 0)
    victims = {
        Kind.STOP: (Victim.SERVICE, *_agents(flow)),
        Kind.FREEZE: (Victim.SERVICE,),
        Kind.PAUSE: (Victim.SERVICE, *_agents(flow)),
        Kind.CUT: _agents(flow),
        Kind.HALF_OPEN: _agents(flow),
        Kind.TROUBLE: _agents(flow),
        Kind.CANCEL: (Victim.CALLER,),
    }.get(kind, (Victim.LOG,))
    for number, name in enumerate(effects, 1):
        if victims == (Victim.LOG,) and name != "log.append" and kind in _APPEND_FAULTS:
            continue
        for victim in victims:
            yield (Blow(number, When.BEFORE, victim, kind, size),)


_SIZES: Final = {Kind.TROUBLE: 3, Kind.OUTAGE: 20, Kind.FREEZE: 9, Kind.PAUSE: 25}
_APPEND_FAULTS: Final = frozenset({Kind.LANDED, Kind.LANDED_LATE, Kind.LOST})


def cancels_while_down(flow: Flow, effects: tuple[str, ...]) -> Iterator[Plan]:
    """Every way in which the first turn is cancelled just when its agent dies."""
    victim = _agents(flow)[0]
    for number in range(1, len(effects) + 1):
        death = Blow(number, When.BEFORE, victim)
        yield death, Blow(number, When.BEFORE, Victim.CALLER, Kind.CANCEL)


def _agents(flow: Flow) -> tuple[Victim, ...]:
    return tuple(dict.fromkeys(AGENTS[ask.agent] for ask in flow.asks))


def _deaths_at(flow: Flow, effects: tuple[str, ...], start: int) -> Iterator[Blow]:
    for number in range(start, len(effects) + 1):
        for victim in (Victim.SERVICE, *_agents(flow)):
            yield Blow(number, When.BEFORE, victim)
            yield Blow(number, When.AFTER, victim)
        if effects[number - 1] == "log.append":
            yield Blow(number, When.LATE, Victim.SERVICE)


__all__ = ["FLOWS", "Flow", "Outcome", "double_deaths", "run", "single_blows", "single_deaths"]
