"""What every driver works with, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vystak_turns.app.agent_gate import AgentGate
from vystak_turns.app.health import AgentHealth
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.limits import Limits
from vystak_turns.app.pauses import Pauses
from vystak_turns.ports import Agent, Clock, Ids, Journal, TurnLog


@dataclass(frozen=True, slots=True)
class World:
    """The ports, the ledger on top of the journal, the agents' health and gates, the limits."""

    journal: Journal
    ledger: Ledger
    log: TurnLog
    agents: Mapping[str, Agent]
    health: Mapping[str, AgentHealth]
    gates: Mapping[str, AgentGate]
    clock: Clock
    ids: Ids
    limits: Limits

    def pauses(self) -> Pauses:
        """Return the pauses of one retrying loop."""
        return Pauses(
            self.clock,
            self.ids,
            first_s=self.limits.retry_first_s,
            longest_s=self.limits.retry_max_s,
        )
