"""The whole proof as jobs: which runs there are, and running them on all processors."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

import structlog

from tests.simulation.blows import Blow, Kind, Plan
from tests.simulation.chance import run_seed
from tests.simulation.flows import FLOWS, Flow
from tests.simulation.runs import (
    Outcome,
    cancels_while_down,
    double_deaths,
    run,
    single_blows,
    single_deaths,
)

_T = TypeVar("_T")

PLAIN: Final = FLOWS[0]
OTHER_KINDS: Final = tuple(kind for kind in Kind if kind is not Kind.KILL)
"""All blows but deaths; each strikes every flow at every effect that it can strike."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many runs there were of one sort, and the ones that broke a rule."""

    name: str
    runs: int
    broken: tuple[Outcome, ...]


def be_quiet() -> None:
    """The service's own log would drown the table; a single run (--plan) shows it."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def all_blows(flow: Flow, *, every: int = 1) -> Iterator[Plan]:
    """No blow, every single death, and each `every`-th of all other single blows."""
    effects = run(flow).effects
    yield ()
    yield from single_deaths(flow, effects)
    for kind in OTHER_KINDS:
        yield from itertools.islice(single_blows(flow, effects, kind), None, None, every)
    yield from itertools.islice(cancels_while_down(flow, effects), None, None, every)


def run_plan(job: tuple[str, Plan]) -> Outcome:
    """Run one plan of a flow, given by its name."""
    name, plan = job
    return without_effects(run(next(f for f in FLOWS if f.name == name), plan))


def run_pairs(job: tuple[str, Plan, int]) -> list[Outcome]:
    """Run each `sample`-th death after a given first one."""
    name, first, sample = job
    flow = next(f for f in FLOWS if f.name == name)
    seconds = itertools.islice(double_deaths(flow, first), first[0].effect % sample, None, sample)
    return [without_effects(run(flow, plan)) for plan in seconds]


def without_effects(outcome: Outcome) -> Outcome:
    """Leave out what is long and only of use while plans are made."""
    return replace(outcome, effects=())


def run_seeds(job: tuple[int, int]) -> list[Outcome]:
    """Run a range of seeds."""
    return [without_effects(run_seed(seed)) for seed in range(*job)]


class Pool:
    """Runs jobs on all processors, in order."""

    def __init__(self) -> None:
        self._executor = ProcessPoolExecutor(os.cpu_count(), initializer=be_quiet)

    def __enter__(self) -> Self:
        self._executor.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    def map(self, work: Callable[[_T], Outcome], jobs: Sequence[_T]) -> Iterable[Outcome]:
        """Yield the outcome of each job."""
        return self._executor.map(work, jobs, chunksize=16)

    def map_many(
        self, work: Callable[[_T], list[Outcome]], jobs: Sequence[_T]
    ) -> Iterable[Outcome]:
        """Yield the outcomes of each job."""
        return itertools.chain.from_iterable(self._executor.map(work, jobs))


def tally(name: str, outcomes: Iterable[Outcome]) -> Tally:
    """Count."""
    count, broken = 0, []
    for outcome in outcomes:
        count += 1
        if outcome.violations:
            broken.append(outcome)
    return Tally(name, count, tuple(broken))


def blows_of(name: str, flow: Flow, pool: Pool, *, every: int = 1) -> Tally:
    """All single blows of a flow."""
    return tally(
        name, pool.map(run_plan, [(flow.name, plan) for plan in all_blows(flow, every=every)])
    )


def pairs_of(name: str, flow: Flow, pool: Pool, sample: int) -> Tally:
    """Deaths in pairs: each first death with each `sample`-th second one."""
    firsts: list[tuple[Blow, ...]] = list(single_deaths(flow, run(flow).effects))
    jobs = [(flow.name, first, sample) for first in firsts]
    return tally(name, pool.map_many(run_pairs, jobs))


def seeds_of(name: str, first: int, count: int, pool: Pool) -> Tally:
    """Random schedules."""
    jobs = [(seed, min(seed + 10, first + count)) for seed in range(first, first + count, 10)]
    return tally(name, pool.map_many(run_seeds, jobs))
