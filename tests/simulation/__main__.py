"""`make sim`: every crash point once, and twice; prints the counts and every violation.

make sim                                     all single deaths; all double ones of the plain flow
make sim ARGS="--all"                        all double deaths of every flow (about an hour)
make sim ARGS="--flow 'plain tools' --plan 12:before:agent,30:after:service"     one run again
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

import structlog
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.simulation.crashes import Crash, Victim, When
from tests.simulation.runs import FLOWS, Flow, Outcome, double_crashes, run, single_crashes

_SAMPLE = 25
"""Of the double deaths that are not all run: every n-th."""


def main() -> int:
    """Run what was asked for; the exit code is 1 if a rule was broken."""
    arguments = _parser().parse_args()
    console = Console()
    if arguments.plan:
        outcome = run(_flow(arguments.flow or FLOWS[0].name), _plan(arguments.plan))
        console.print(str(outcome), markup=False)
        return bool(outcome.violations)
    _be_quiet()
    flows = [_flow(arguments.flow)] if arguments.flow else list(FLOWS)
    return _prove(console, flows, every_pair=arguments.all)


def _prove(console: Console, flows: list[Flow], *, every_pair: bool) -> int:
    table = Table("flow", "effects", "single deaths", "double deaths", "violations")
    broken: list[Outcome] = []
    total = 0
    with ProcessPoolExecutor(os.cpu_count(), initializer=_be_quiet) as pool:
        for flow in flows:
            singles = list(single_crashes(flow))
            sample = 1 if every_pair or flow is FLOWS[0] else _SAMPLE
            jobs = [(flow, plan[0], sample) for plan in singles]
            done = track(
                pool.map(_all_of_first, jobs), f"{flow.name:26}", len(jobs), console=console
            )
            results = [run(flow), *itertools.chain.from_iterable(done)]
            wrong = [outcome for outcome in results if outcome.violations]
            doubles = len(results) - len(singles) - 1
            effects = len(results[0].effects)
            table.add_row(flow.name, *map(str, (effects, len(singles), doubles, len(wrong))))
            broken += wrong
            total += len(results)
    console.print(table)
    _tell(console, broken)
    console.print(f"{total} runs, {len(broken)} violations")
    return bool(broken)


def _all_of_first(job: tuple[Flow, Crash, int]) -> list[Outcome]:
    """The run that dies once, and the ones that die once more after that."""
    flow, first, sample = job
    seconds = itertools.islice(double_crashes(flow, first), first.effect % sample, None, sample)
    outcomes = [run(flow, (first,)), *(run(flow, plan) for plan in seconds)]
    return [_without_names(outcome) for outcome in outcomes]


def _without_names(outcome: Outcome) -> Outcome:
    return Outcome(outcome.flow, outcome.plan, outcome.violations, ())


def _tell(console: Console, broken: Iterable[Outcome]) -> None:
    for outcome in broken:
        plan = ",".join(str(c) for c in outcome.plan)
        console.print(str(outcome), style="red", markup=False)
        console.print(f"""  again: make sim ARGS="--flow '{outcome.flow.name}' --plan {plan}" """)


def _plan(text: str) -> tuple[Crash, ...]:
    parts = [part.split(":") for part in text.split(",")]
    return tuple(Crash(int(number), When(when), Victim(who)) for number, when, who in parts)


def _flow(name: str) -> Flow:
    for flow in FLOWS:
        if flow.name == name:
            return flow
    sys.exit(f"no flow {name!r}; there are: {', '.join(f.name for f in FLOWS)}")


def _be_quiet() -> None:
    """The service's own log would drown the table; a single run (--plan) shows it."""
    level = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=level)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all double deaths of every flow")
    parser.add_argument("--flow", help="only this flow")
    parser.add_argument("--plan", help="one run: EFFECT:WHEN:VICTIM,…")
    return parser


if __name__ == "__main__":
    sys.exit(main())
