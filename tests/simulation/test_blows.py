"""The rules hold whatever befalls whom, wherever: a fixed sample; `make sim` runs all of it."""

from __future__ import annotations

import random

import pytest

from tests.simulation.blows import Kind, parse_plan
from tests.simulation.chance import run_seed, schedule
from tests.simulation.flows import FLOWS, Flow
from tests.simulation.proof import OTHER_KINDS
from tests.simulation.runs import (
    cancels_while_down,
    double_deaths,
    run,
    single_blows,
    single_deaths,
)

_DEATHS = 12
_PAIRS = 4
_SEEDS = 250
_SEEDS_A_TEST = 50


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_every_rule_holds_when_nothing_happens_and_when_somebody_dies(flow: Flow) -> None:
    chance = random.Random(flow.name)
    calm = run(flow)
    deaths = list(single_deaths(flow, calm.effects))
    plans = chance.sample(deaths, _DEATHS)
    firsts = chance.sample(deaths, _PAIRS)
    plans += [chance.choice(list(double_deaths(flow, first)) or [first]) for first in firsts]

    broken = [str(outcome) for plan in plans if (outcome := run(flow, plan)).violations]

    assert not calm.violations
    assert len(deaths) > 4 * len(calm.effects), "crash points went missing"
    assert not broken


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_rule_holds_when_something_else_happens(kind: Kind) -> None:
    chance = random.Random(kind)
    broken = []
    for flow in chance.sample(FLOWS, 12):
        plans = list(single_blows(flow, run(flow).effects, kind))
        broken += [str(o) for plan in chance.sample(plans, 2) if (o := run(flow, plan)).violations]

    assert not broken


def test_a_cancel_ends_a_turn_also_when_its_agent_dies_at_that_moment() -> None:
    chance = random.Random(2026)
    broken = []
    for flow in chance.sample(FLOWS, 12):
        plans = list(cancels_while_down(flow, run(flow).effects))
        broken += [str(o) for plan in chance.sample(plans, 2) if (o := run(flow, plan)).violations]

    assert not broken


@pytest.mark.parametrize("first", range(0, _SEEDS, _SEEDS_A_TEST))
def test_every_rule_holds_in_random_schedules(first: int) -> None:
    broken = {
        f"make sim SEED={seed}": str(outcome)
        for seed in range(first, first + _SEEDS_A_TEST)
        if (outcome := run_seed(seed)).violations
    }

    assert not broken


def test_the_same_seed_gives_the_same_run() -> None:
    first, again = run_seed(7), run_seed(7)

    assert first.effects
    assert first == again


def test_a_plan_is_read_as_it_is_written() -> None:
    _, plan = schedule(7)

    assert parse_plan(",".join(str(blow) for blow in plan)) == plan
