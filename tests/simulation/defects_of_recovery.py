"""Defects of recovery: the probe table, its claims, and who drives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.fake_agent import FakeAgent
from tests.simulation.patches import Patch
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.app import log_writer, recovery
from vystak_turns.app.supervisor import Supervisor
from vystak_turns.core import probe, rows, transitions
from vystak_turns.core.effects import Effect, Fail, Resume, Rewind
from vystak_turns.core.facts import DriverStarted, StreamEnded
from vystak_turns.core.findings import AgentView, Asked, Findings, Terminal
from vystak_turns.core.probe import Row
from vystak_turns.core.settle import Moved, Overtaken, Rebase, Retry
from vystak_turns.core.settle import settle as settle_of_the_core
from vystak_turns.core.turn import Claim, Failure, Turn
from vystak_turns_rpc.vocabulary import FailureCode, TurnState


def terminal_not_read_back() -> list[Patch]:
    """Leave row 1 out."""
    honest = probe.first_fitting_row

    def row(turn: Turn, findings: Findings) -> Row:
        tail = findings.tail
        if tail is not None and isinstance(tail.what, Terminal):
            if findings.view is None:
                return Row.AGENT_SILENT
            return honest(turn, replace(findings, tail=replace(tail, what=Asked(0, ""))))
        return honest(turn, findings)

    async def always_ask(self: recovery.Scout, turn: Turn, caught_up: Any, announce: Any) -> Any:
        ends, findings = await honest_look(self, turn, caught_up, announce)
        if findings.view is None and ends.tail is not None:
            view, waited_out = await self._ask_agent(turn)
            findings = replace(findings, view=view, waited_out=waited_out)
        return ends, findings

    honest_look = recovery.Scout.look
    return [(probe, "first_fitting_row", row), (recovery.Scout, "look", always_ask)]


def middle_before_active() -> list[Patch]:
    """Go on with a thread on which a run is active: row 10 before row 3."""
    honest = probe.first_fitting_row

    def row(turn: Turn, findings: Findings) -> Row:
        if findings.view is not None and findings.view.active:
            return honest(turn, replace(findings, view=replace(findings.view, active=False)))
        return honest(turn, findings)

    def check(_self: Any, _call: Any) -> None:
        return

    return [(probe, "first_fitting_row", row), (FakeAgent, "_check", check)]


def dispatch_after_finish() -> list[Patch]:
    """Trust the thread's state instead of the turn's stamp: row 6 before row 5."""
    honest = probe.first_fitting_row

    def row(turn: Turn, findings: Findings) -> Row:
        found = honest(turn, findings)
        finished = findings.view is not None and findings.view.finished
        return Row.FINISHED if found is Row.NOT_STARTED and finished else found

    return [(probe, "first_fitting_row", row)]


def end_wanted_last() -> list[Patch]:
    """Go on with a cancelled or superseded turn: row 4 after all others."""
    honest = probe.first_fitting_row

    def row(turn: Turn, findings: Findings) -> Row:
        return honest(replace(turn, intent=None), findings)

    return [(probe, "first_fitting_row", row)]


def input_twice() -> list[Patch]:
    """Dispatch the request again although the thread is stamped, on a thread of that moment."""
    honest = probe.first_fitting_row

    def row(turn: Turn, findings: Findings) -> Row:
        found = honest(turn, findings)
        return Row.NOT_STARTED if found is Row.IN_THE_MIDDLE else found

    def check(_self: Any, _call: Any) -> None:
        return

    return [(probe, "first_fitting_row", row), (FakeAgent, "_check", check)]


def no_probe_on_a_moved_log() -> list[Patch]:
    """Step over a message that came between our reading and our writing."""
    honest = settle_of_the_core

    def settle(tail: Any, attempted: Any) -> Any:
        verdict = honest(tail, attempted)
        if isinstance(verdict, Moved):
            return Retry(0) if tail is None else Rebase(tail.stream_seq, tail.seq)
        return verdict

    return [(log_writer, "settle", settle)]


def claims_never_count() -> list[Patch]:
    """Take claims without counting them."""
    honest = rows._claim

    def claim(turn: Turn, fact: Any, before: tuple[Effect, ...], call: Effect) -> Any:
        return honest(replace(turn, free_claim=True), fact, before, call)

    return [(rows, "_claim", claim)]


def claims_count_late() -> list[Patch]:
    """Count a claim only when its stream has ended, so that a death is not counted."""
    honest_claim, honest_ended = rows._claim, transitions._stream_ended

    def claim(turn: Turn, fact: Any, before: tuple[Effect, ...], call: Effect) -> Any:
        after, effects = honest_claim(turn, fact, before, call)
        if after.claim is not Claim.COUNTED:
            return after, effects
        uncounted = replace(after, attempts=after.attempts - 1, redrives=after.redrives - 1)
        return uncounted, effects

    def ended(turn: Turn, fact: StreamEnded) -> Any:
        counted = turn.claim is Claim.COUNTED
        return honest_ended(replace(turn, attempts=turn.attempts + counted), fact)

    key = (TurnState.RUNNING, StreamEnded)
    table = {**transitions.TABLE, key: ended}
    return [(rows, "_claim", claim), (transitions, "TABLE", table)]


def progress_never_counts() -> list[Patch]:
    """Count attempts over the whole turn, whatever it has achieved."""

    def attempts(turn: Turn, _view: AgentView) -> int:
        return turn.attempts

    return [(rows, "_attempts", attempts)]


def orderly_stops_cost() -> list[Patch]:
    """Count the claim after an orderly stop like any other."""
    honest = rows._claim

    def claim(turn: Turn, fact: Any, before: tuple[Effect, ...], call: Effect) -> Any:
        return honest(replace(turn, free_claim=False), fact, before, call)

    return [(rows, "_claim", claim)]


def superseded_driver_goes_on() -> list[Patch]:
    """Let a zombie write beside its successor: into the journal, and on top of its messages."""
    honest = settle_of_the_core

    def settle(tail: Any, attempted: Any) -> Any:
        verdict = honest(tail, attempted)
        overtaken = isinstance(verdict, Overtaken)
        return Rebase(tail.stream_seq, tail.seq) if overtaken else verdict

    def check_owner(_self: Any, _connection: Any) -> None:
        return

    return [(log_writer, "settle", settle), (SqliteJournal, "_check_owner", check_owner)]


def failure_for_a_retryable_trouble() -> list[Patch]:
    """Publish response.failed when a stream is lost."""

    def ended(turn: Turn, _fact: StreamEnded) -> Any:
        failure = Failure(FailureCode.AGENT_REFUSED, "the stream was lost")
        return turn, (Fail(failure),)

    key = (TurnState.RUNNING, StreamEnded)
    return [(transitions, "TABLE", {**transitions.TABLE, key: ended})]


def orphans_left_alone() -> list[Patch]:
    """Do not look for unfinished turns at the start."""
    return [(Supervisor, "start", lambda _self: None)]


def taken_over_without_probing() -> list[Patch]:
    """Begin again with what the journal says, without asking the agent."""

    def take_over(turn: Turn, fact: DriverStarted) -> Any:
        taken = replace(turn, state=TurnState.RUNNING, token=fact.new_token, claim=Claim.FREE)
        return taken, (Resume(catch_up=False, after=None),)

    key = (TurnState.RUNNING, DriverStarted)
    return [(transitions, "TABLE", {**transitions.TABLE, key: take_over})]


def catch_up_without_rewind() -> list[Patch]:
    """Resume with a catch-up from the start, on top of what readers have."""
    honest = rows._continue

    def go_on(turn: Turn, fact: Any) -> Any:
        after, effects = honest(turn, fact)
        kept = tuple(e for e in effects if not isinstance(e, Rewind))
        return after, kept

    return [(rows, "ROWS", {**rows.ROWS, Row.IN_THE_MIDDLE: go_on})]
