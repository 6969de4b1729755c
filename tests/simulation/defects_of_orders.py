"""Defects of decisions, and of the order of commits, events and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.simulation import fake_run
from tests.simulation.fake_agent import FakeAgent
from tests.simulation.patches import Patch
from vystak_turns.app import methods
from vystak_turns.app.executor import Executor
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.methods import Methods
from vystak_turns.app.supervisor import Supervisor
from vystak_turns.core import probe, rows
from vystak_turns.core.facts import ApprovalAsked, DecisionGiven, TerminalAppended
from vystak_turns.core.findings import AgentView, Asked
from vystak_turns.core.turn import Decision, Turn
from vystak_turns_rpc import methods as wire
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.vocabulary import TurnState, wire_status


def decision_not_stored() -> list[Patch]:
    """Acknowledge a decision and keep it in memory only."""
    honest = Ledger.apply_held

    async def apply_held(self: Ledger, turn: Turn, fact: Any, boundaries: Any = None) -> Any:
        if isinstance(fact, DecisionGiven):
            after, effects = await honest(self, turn, fact, boundaries)
            bare = replace(after, park=replace(after.park, decisions=()))  # type: ignore[type-var]
            await self._journal.save(bare)
            return after, effects
        return await honest(self, turn, fact, boundaries)

    return [(Ledger, "apply_held", apply_held)]


def bare_value() -> list[Patch]:
    """Deliver the last decision to whatever is asked now, as a bare value."""
    honest = FakeAgent._run

    async def run(self: Any, call: Any, reader: Any) -> Any:
        if getattr(call, "decisions", ()):
            thread = self.threads.get(call.thread_id)
            asked = thread.pending if thread else ()
            value = call.decisions[-1].value
            bare = tuple(Decision(q.interrupt_id, value) for q in asked)
            call = replace(call, decisions=bare)
        return await honest(self, call, reader)

    return [
        (FakeAgent, "_run", run),
        (rows, "_pending_decisions", lambda turn, _view: turn.park.decisions if turn.park else ()),
        (probe, "next_question", _any_decision_will_do),
    ]


def _any_decision_will_do(turn: Turn, view: AgentView) -> Any:
    if turn.park is not None and turn.park.decisions:
        return None
    return view.questions[0] if view.questions else None


def generation_not_compared() -> list[Patch]:
    """Take a decision for whatever question is asked now."""

    def check(turn: Turn, _asked: Any) -> None:
        if turn.state is not TurnState.PARKED:
            raise RpcError(ErrorCode.INVALID_PARAMS, "not parked")

    return [(methods, "_check_question", check)]


def parked_not_checked() -> list[Patch]:
    """Check whether the turn is parked before its lock is held, so that many callers pass."""

    async def resume(self: Methods, _agent: str, params: Any) -> Any:
        asked = wire.parse_params(wire.ResumeDetachedParams, params)
        turn = await self._journal.get(asked.turn_id)
        if turn is None or turn.park is None:
            raise RpcError(ErrorCode.INVALID_PARAMS, "unknown")
        methods._check_question(turn, asked)
        await self._ledger.apply_held(turn, DecisionGiven(asked.resume))
        self._drivers.wake(asked.turn_id)
        return wire.ResumeDetachedResult(turn_id=asked.turn_id)

    return [(Methods, "resume_detached", resume)]


def approval_by_type_only() -> list[Patch]:
    """Take any approval event at the log's end for the one that is due."""

    def asks(tail: Any, _park: Any) -> bool:
        return tail is not None and isinstance(tail.what, Asked)

    return [(probe, "asks_already", asks)]


def status_before_event(kind: type[Any]) -> Callable[[], list[Patch]]:
    """Commit a park or an end before its event is in the log."""

    def patches() -> list[Patch]:
        honest_ask, honest_fail = Executor.ask, Executor.fail

        async def ask(self: Executor, park: Any) -> Any:
            early = ApprovalAsked(self._turn.token, park, self._writer.last_seq + 1)
            await self._world.ledger.apply(self._turn.turn_id, early)
            await honest_ask(self, park)
            return None

        async def fail(self: Executor, failure: Any) -> Any:
            early = TerminalAppended(self._turn.token, self._writer.last_seq + 1, failure)
            await self._world.ledger.apply(self._turn.turn_id, early)
            await honest_fail(self, failure)
            return None

        if kind is ApprovalAsked:
            return [(Executor, "ask", ask)]
        return [(Executor, "fail", fail)]

    return patches


def acknowledged_before_journaled() -> list[Patch]:
    """Acknowledge a dispatch before it is committed."""
    honest = Methods._create
    tasks: set[Any] = set()

    async def create(self: Methods, agent: str, asked: Any) -> None:
        task = asyncio.create_task(honest(self, agent, asked))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return [(Methods, "_create", create)]


def thread_not_reserved() -> list[Patch]:
    """Let a second turn begin on a thread whose first one has not ended."""

    async def create(self: Methods, turn: Turn, request: Any) -> None:
        await self._ledger.create(turn, request, None)

    async def wait(_self: Supervisor, _turn_id: str) -> None:
        return

    return [(Methods, "_create_on_thread", create), (Supervisor, "_wait_for_thread", wait)]


def cancel_not_stored() -> list[Patch]:
    """Acknowledge a cancel and do nothing about it."""

    async def cancel(self: Methods, _agent: str, params: Any) -> Any:
        asked = wire.parse_params(wire.CancelDetachedParams, params)
        turn = await self._journal.get(asked.turn_id)
        status = wire_status(turn.state if turn else None)
        return wire.CancelDetachedResult(turn_id=asked.turn_id, status=status)

    return [(Methods, "cancel_detached", cancel)]


def questions_used_up_unnoticed() -> list[Patch]:
    """Deliver one decision of several without a catch-up, though another was used up."""
    return [(rows, "_same_questions", lambda turn, _view: turn.park is not None)]


def cached_results_twice() -> list[Patch]:
    """An agent that tells results of finished tasks again after its catch-up."""
    return [(fake_run.GraphRun, "_assumed_told", lambda _self: {})]


def text_not_taken_back() -> list[Patch]:
    """An agent that never says that text was not kept."""

    async def keep(_self: Any, _kept: Any) -> None:
        return

    return [(fake_run.GraphRun, "_roll_back_unless_kept", keep)]
