"""`make sim`: what may befall processes, connections and the log, at every effect of every flow.

make sim                       every single blow, a sample of pairs of deaths, 2,000 random seeds
make sim SEED=17               the run of one seed again, with the service's own log
make sim ARGS="--seeds 50000"  more random schedules
make sim ARGS="--all"          every pair of deaths of every flow (hours)
make sim ARGS="--flow 'plain tools' --plan 12:before:agent:kill,30:after:service:kill"
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tests.simulation import proof
from tests.simulation.blows import parse_plan
from tests.simulation.chance import run_seed
from tests.simulation.flows import FLOWS, Flow, flow_named
from tests.simulation.runs import Outcome, run

_PAIRS = 397
"""Of the deaths after a first one, each n-th is run; of the plain flow each `_PLAIN_PAIRS`-th."""
_PLAIN_PAIRS = 31
_OTHERS = 5
"""Of the blows that are no deaths, each n-th is run."""
_SEEDS = 2000


def main() -> int:
    """Run what was asked for; the exit code is 1 if a rule was broken."""
    arguments = _parser().parse_args()
    console = Console()
    if arguments.seed is not None:
        return _show(console, run_seed(arguments.seed))
    if arguments.plan is not None:
        flow = _flow(arguments.flow or FLOWS[0].name)
        return _show(console, run(flow, parse_plan(arguments.plan)))
    proof.be_quiet()
    flows = [_flow(arguments.flow)] if arguments.flow else list(FLOWS)
    began_s = time.monotonic()
    with proof.Pool() as pool:
        tallies = []
        for tally in _prove(pool, flows, arguments.seeds, every_pair=arguments.all):
            console.print(f"{tally.name:48} {tally.runs:6} runs {len(tally.broken):4} broken")
            _tell(console, tally.broken)
            tallies.append(tally)
    return _sum_up(console, tallies, time.monotonic() - began_s)


def _prove(
    pool: proof.Pool, flows: list[Flow], seeds: int, *, every_pair: bool
) -> Iterator[proof.Tally]:
    for flow in flows:
        every = 1 if every_pair else _OTHERS
        yield proof.blows_of(f"{flow.name}: one blow", flow, pool, every=every)
        sample = 1 if every_pair else _PLAIN_PAIRS if flow is proof.PLAIN else _PAIRS
        yield proof.pairs_of(f"{flow.name}: two deaths", flow, pool, sample)
    if seeds:
        yield proof.seeds_of("random schedules", 0, seeds, pool)


def _show(console: Console, outcome: Outcome) -> int:
    console.print(str(outcome), markup=False, soft_wrap=True)
    return bool(outcome.violations)


def _tell(console: Console, broken: tuple[Outcome, ...]) -> None:
    for outcome in broken[:10]:
        plan = ",".join(str(blow) for blow in outcome.plan)
        console.print(str(outcome), style="red", markup=False, soft_wrap=True)
        again = f"--flow '{outcome.flow.name}' --plan {plan}"
        if outcome.seed is not None:
            console.print(f"  again: make sim SEED={outcome.seed}", markup=False, soft_wrap=True)
        else:
            console.print(f'  again: make sim ARGS="{again}"', markup=False, soft_wrap=True)


def _sum_up(console: Console, tallies: list[proof.Tally], took_s: float) -> int:
    runs = sum(tally.runs for tally in tallies)
    broken = sum(len(tally.broken) for tally in tallies)
    table = Table("flows", "runs", "violations", "seconds")
    table.add_row(str(len(FLOWS)), str(runs), str(broken), f"{took_s:.0f}")
    console.print(table)
    return bool(broken)


def _flow(name: str) -> Flow:
    try:
        return flow_named(name)
    except KeyError:
        sys.exit(f"no flow {name!r}; there are: {', '.join(f.name for f in FLOWS)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every pair of deaths of every flow")
    parser.add_argument("--flow", help="only this flow")
    parser.add_argument("--plan", help="one run: EFFECT:WHEN:VICTIM:KIND[:SIZE],…")
    parser.add_argument("--seed", type=int, help="one run: what this seed stands for")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="how many random schedules")
    return parser


if __name__ == "__main__":
    sys.exit(main())
