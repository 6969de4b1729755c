"""Random schedules: a seed chooses a flow and what befalls it. The same seed, the same run."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from tests.simulation.blows import Blow, Kind, Plan, Victim, When
from tests.simulation.flows import FLOWS, Flow
from tests.simulation.runs import Outcome, run
from tests.simulation.world import AGENTS

# What may befall whom, how often (a weight), and how long or how many (a range of sizes).
_AGENT_BLOWS: Final = (
    (Kind.KILL, 5, (0, 0)),
    (Kind.STOP, 2, (0, 0)),
    (Kind.PAUSE, 2, (1, 60)),
    (Kind.CUT, 3, (0, 0)),
    (Kind.HALF_OPEN, 2, (0, 0)),
    (Kind.TROUBLE, 3, (1, 6)),
)
_SERVICE_BLOWS: Final = (
    (Kind.KILL, 5, (0, 0)),
    (Kind.STOP, 2, (0, 0)),
    (Kind.FREEZE, 3, (1, 40)),
    (Kind.PAUSE, 2, (1, 30)),
)
_LOG_BLOWS: Final = (
    (Kind.LANDED, 3, (0, 0)),
    (Kind.LANDED_LATE, 3, (0, 0)),
    (Kind.LOST, 3, (0, 0)),
    (Kind.OUTAGE, 2, (1, 60)),
    (Kind.PURGE, 1, (0, 0)),
    (Kind.DELETE, 1, (0, 0)),
)
_BY_VICTIM: Final = {
    Victim.SERVICE: _SERVICE_BLOWS,
    Victim.AGENT: _AGENT_BLOWS,
    Victim.OTHER: _AGENT_BLOWS,
    Victim.LOG: _LOG_BLOWS,
    Victim.CALLER: ((Kind.CANCEL, 1, (0, 0)),),
}
_LAST_EFFECT: Final = 220
_MOST_BLOWS: Final = 5


def schedule(seed: int) -> tuple[Flow, Plan]:
    """Return what a seed stands for."""
    chance = random.Random(seed)
    flow = chance.choice(FLOWS)
    victims = [Victim.SERVICE, *{AGENTS[ask.agent]: 0 for ask in flow.asks}, Victim.LOG]
    weights = [4, *(3 for _ in victims[1:-1]), 2]
    if chance.random() < 0.15:
        victims.append(Victim.CALLER)
        weights.append(1)
    count = chance.randint(1, _MOST_BLOWS)
    last = chance.choice((60, 120, _LAST_EFFECT))
    blows = [_blow(chance, chance.choices(victims, weights)[0], last) for _ in range(count)]
    return flow, tuple(sorted(_possible(blows)))


def _possible(blows: list[Blow]) -> list[Blow]:
    """Leave out what no fence of the log can stop.

    A stream that is deleted and made anew counts from 1 again, so the number that a service
    expects which was frozen meanwhile may come up a second time. A purged one counts on.
    """
    if all(blow.kind not in {Kind.FREEZE, Kind.PAUSE} for blow in blows):
        return blows
    return [replace(b, kind=Kind.PURGE) if b.kind is Kind.DELETE else b for b in blows]


def _blow(chance: random.Random, victim: Victim, last: int) -> Blow:
    kinds = _BY_VICTIM[victim]
    kind, _, sizes = chance.choices(kinds, [weight for _, weight, _ in kinds])[0]
    effect = chance.randint(1, last)
    when = chance.choice((When.BEFORE, When.AFTER))
    return Blow(effect, when, victim, kind, chance.randint(*sizes))


def run_seed(seed: int) -> Outcome:
    """Run what a seed stands for."""
    flow, plan = schedule(seed)
    return replace(run(flow, plan, seed), seed=seed)
