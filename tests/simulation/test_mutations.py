"""Each deliberate defect is caught by some run: the simulation is no fiction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.simulation.blows import Blow, Kind, Plan, Victim, When
from tests.simulation.flows import Flow, flow_named
from tests.simulation.mutations import MUTATIONS
from tests.simulation.patches import Mutation
from tests.simulation.runs import run, single_blows, single_deaths

_DEADLINE_S = 20.0
"""Virtual: more than any of the flows takes when one thing happens to it."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_defect_is_caught(mutation: Mutation) -> None:
    with mutation.applied():
        caught = first_violation(mutation)

    assert caught is not None, f"no run objects to: {mutation.name}"


def test_there_are_enough_defects_and_each_has_a_name_of_its_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) > 15


@pytest.mark.parametrize("name", sorted({name for m in MUTATIONS for name in m.flows}))
def test_without_a_defect_nobody_objects(name: str) -> None:
    assert not run(flow_named(name), deadline_s=_DEADLINE_S).violations


def first_violation(mutation: Mutation) -> str | None:
    for name in mutation.flows:
        flow = flow_named(name)
        if "four deaths" in mutation.kinds:
            flow = replace(flow, asks=tuple(replace(ask, strict=True) for ask in flow.asks))
        for plan in plans_of(mutation, flow):
            outcome = run(flow, plan, deadline_s=_DEADLINE_S)
            if outcome.violations:
                return str(outcome)
    return None


def plans_of(mutation: Mutation, flow: Flow) -> Iterator[Plan]:
    yield ()
    effects = run(flow).effects
    for kind in mutation.kinds:
        yield from spread(list(_plans_of_kind(kind, flow, effects)))


def _plans_of_kind(kind: str, flow: Flow, effects: tuple[str, ...]) -> Iterator[Plan]:
    deaths = list(single_deaths(flow, effects))
    match kind:
        case "kill":
            yield from deaths
        case "late":
            late = [plan[0] for plan in deaths if plan[0].when is When.LATE]
            for size in range(1, 20):
                yield from ((replace(blow, size=size),) for blow in late)
        case "purge+kill" | "freeze+purge" | "two freezes" | "four deaths":
            yield from _COMBINED[kind](len(effects))
        case _:
            yield from single_blows(flow, effects, Kind(kind))


def _purge_and_kill(effects: int) -> Iterator[Plan]:
    for number in range(10, effects, 3):
        purge = Blow(number, When.BEFORE, Victim.LOG, Kind.PURGE)
        yield purge, Blow(number, When.BEFORE, Victim.SERVICE)


def _freeze_and_purge(effects: int) -> Iterator[Plan]:
    """The log is emptied while the successor is quiet, before the zombie thaws."""
    for later in range(28, min(60, effects)):
        purge = Blow(later, When.BEFORE, Victim.LOG, Kind.PURGE)
        for number in (8, 9, 12, 15):
            yield Blow(number, When.AFTER, Victim.SERVICE, Kind.FREEZE, 13), purge


def _two_freezes(_effects: int) -> Iterator[Plan]:
    for number in range(3, 9):
        first = Blow(number, When.AFTER, Victim.SERVICE, Kind.FREEZE, 7)
        for later in range(number + 15, number + 30, 2):
            yield first, Blow(later, When.BEFORE, Victim.SERVICE, Kind.FREEZE, 10)


def _deaths_with_progress(_effects: int) -> Iterator[Plan]:
    for start in range(8, 20):
        numbers = itertools.islice(itertools.count(start, 24), 5)
        yield tuple(Blow(n, When.BEFORE, Victim.AGENT) for n in numbers)


_COMBINED = {
    "purge+kill": _purge_and_kill,
    "freeze+purge": _freeze_and_purge,
    "two freezes": _two_freezes,
    "four deaths": _deaths_with_progress,
}


def spread(plans: list[Plan]) -> Iterator[Plan]:
    """Take plans from all parts of the run early: most defects show in many of them."""
    for offset in range(7):
        yield from plans[offset::7]
