"""What each row of the probe table does: claims, rewinds, calls, ends (see `probe`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from vystak_turns.core import probe
from vystak_turns.core.effects import (
    AskApproval,
    CatchUp,
    Dispatch,
    Drain,
    Effect,
    Fail,
    Pace,
    Probe,
    Resume,
    Rewind,
)
from vystak_turns.core.facts import ImpossibleFactError, Probed
from vystak_turns.core.findings import AgentView, Findings, Rewound, Terminal
from vystak_turns.core.probe import Row
from vystak_turns.core.turn import Boundary, Claim, Decision, Failure, Intent, Park, Turn
from vystak_turns_rpc.vocabulary import FailureCode, TurnState

Step: TypeAlias = tuple[Turn, tuple[Effect, ...]]


def is_last_attempt(turn: Turn, findings: Findings) -> bool:
    """Whether the next claim is the last one before the cap, so that it is made alone (R9)."""
    view = findings.view
    if view is None or turn.free_claim:
        return False
    return _attempts(turn, view) + 1 == findings.max_attempts


def calls_agent(turn: Turn, findings: Findings) -> bool:
    """Whether the row that fits starts a run."""
    return probe.first_fitting_row(turn, findings) in _RUNNING_ROWS


def take_row(turn: Turn, fact: Probed) -> Step:
    """Do what the first fitting row says."""
    turn = _begun_anew(turn, fact.findings)
    row = probe.first_fitting_row(turn, fact.findings)
    return ROWS[row](turn, fact)


def _begun_anew(turn: Turn, findings: Findings) -> Turn:
    """Learn from the log of a rewind to -1 whose driver died before it could commit it."""
    tail = findings.tail
    if tail is None or tail.seq is None or tail.what != Rewound(-1):
        return turn
    return replace(turn, origin_seq=tail.seq)


def _close(turn: Turn, fact: Probed) -> Step:
    tail = fact.findings.tail
    if tail is None or not isinstance(tail.what, Terminal):
        message = "row 1 without a terminal event"
        raise ImpossibleFactError(message)
    seq = turn.last_seq if tail.seq is None else tail.seq
    return end(turn, seq, tail.what.failure), ()


def end(turn: Turn, seq: int, failure: Failure | None) -> Turn:
    """Return the turn with its final status; the log's terminal event stands at `seq`."""
    if failure is None:
        state = TurnState.COMPLETED
    elif failure.code == FailureCode.CANCELLED:
        state = TurnState.CANCELLED
    else:
        state = TurnState.FAILED
    return replace(turn, state=state, last_seq=max(seq, turn.last_seq), failure=failure)


def _wait_for_agent(turn: Turn, fact: Probed) -> Step:
    at_cap = turn.attempts >= fact.findings.max_attempts and not turn.free_claim
    if at_cap and fact.findings.waited_out:
        return _end_wanted(turn, fact) if turn.intent else (turn, (Fail(_exhausted(turn)),))
    return turn, (Probe(Pace.LATER),)


def _drain_run(turn: Turn, _fact: Probed) -> Step:
    return turn, (Drain(), Probe(Pace.LATER))


def _end_wanted(turn: Turn, _fact: Probed) -> Step:
    match turn.intent:
        case Intent.SUPERSEDED:
            words = "A newer turn on the same thread took the place of this one."
            return turn, (Fail(Failure(FailureCode.SUPERSEDED, words)),)
        case _:
            return turn, (Fail(Failure(FailureCode.CANCELLED, "The turn was cancelled.")),)


def _graph_failed(turn: Turn, fact: Probed) -> Step:
    return turn, (Fail(Failure(FailureCode.GRAPH_ERROR, _view(fact).error or "unknown error")),)


def _dispatch_again(turn: Turn, fact: Probed) -> Step:
    return _claim(turn, fact, _rewind_to(turn, fact.findings, None), Dispatch())


def _bring_result(turn: Turn, fact: Probed) -> Step:
    boundary = probe.last_good_boundary(turn, fact.findings, whole=True)
    rewind = _rewind_to(turn, fact.findings, boundary)
    return _claim(turn, fact, rewind, Resume(catch_up=True, after=boundary))


def _continue(turn: Turn, fact: Probed) -> Step:
    boundary = probe.last_good_boundary(turn, fact.findings, whole=False)
    # Also when nothing has to be dropped: readers are told that the turn goes on from here.
    told = probe.begins_here(turn, fact.findings.tail, boundary)
    rewind = () if told else (Rewind(boundary),)
    return _claim(turn, fact, rewind, Resume(catch_up=True, after=boundary))


def _deliver_decisions(turn: Turn, fact: Probed) -> Step:
    decisions = _pending_decisions(turn, _view(fact))
    asked = turn.park is not None and probe.asks_already(fact.findings.tail, turn.park)
    if asked and _same_questions(turn, _view(fact)):
        # Nothing was lost: readers saw everything up to the question (no rewind on a park). A
        # question less would mean that its task finished since, perhaps without being told.
        return _claim(turn, fact, (), Resume(catch_up=False, after=None, decisions=decisions))
    boundary = probe.last_good_boundary(turn, fact.findings, whole=False)
    rewind = _rewind_to(turn, fact.findings, boundary)
    return _claim(turn, fact, rewind, Resume(catch_up=True, after=boundary, decisions=decisions))


def _pending_decisions(turn: Turn, view: AgentView) -> tuple[Decision, ...]:
    if turn.park is None:
        return ()
    pending = {q.interrupt_id for q in view.questions}
    return tuple(d for d in turn.park.decisions if d.interrupt_id in pending)


def _park(turn: Turn, fact: Probed) -> Step:
    view, findings = _view(fact), fact.findings
    park = _due_park(turn, view)
    if findings.tail is not None and probe.asks_already(findings.tail, park):
        seq = turn.last_seq if findings.tail.seq is None else findings.tail.seq
        return park_turn(turn, park, seq), ()
    told = _ends_with_known_park(turn, findings, view) or probe.is_caught_up(turn, findings, view)
    if told or not view.catches_up:
        return turn, (AskApproval(park),)
    boundary = probe.last_good_boundary(turn, findings, whole=True)
    rewind = _rewind_to(turn, findings, boundary)
    return turn, (*rewind, CatchUp(boundary, view.checkpoint_id))


def _due_park(turn: Turn, view: AgentView) -> Park:
    question = probe.next_question(turn, view)
    if question is None:
        message = "row 9 without an undecided interrupt"
        raise ImpossibleFactError(message)
    return Park(
        checkpoint_id=view.checkpoint_id,
        generation=turn.generation + 1,
        asked=question.interrupt_id,
        questions=view.questions,
        decisions=_pending_decisions(turn, view),
    )


def _ends_with_known_park(turn: Turn, findings: Findings, view: AgentView) -> bool:
    """Whether readers have everything up to this park, of which one more question is asked."""
    if turn.park is None or not _same_questions(turn, view):
        return False
    asked = probe.asks_already(findings.tail, turn.park)
    return asked and probe.log_is_whole(turn, findings.head_seq)


def _same_questions(turn: Turn, view: AgentView) -> bool:
    """Whether the thread still waits for exactly the answers of the stored park."""
    if turn.park is None:
        return False
    known = {q.interrupt_id for q in turn.park.questions}
    return known == {q.interrupt_id for q in view.questions}


def park_turn(turn: Turn, park: Park, seq: int) -> Turn:
    """Return the parked turn; the log's approval event stands at `seq`."""
    return replace(
        turn,
        state=TurnState.PARKED,
        park=park,
        generation=park.generation,
        last_seq=max(seq, turn.last_seq),
    )


def _rewind_to(turn: Turn, findings: Findings, target: Boundary | None) -> tuple[Effect, ...]:
    if probe.shown_after(turn, findings.tail, target):
        return (Rewind(target),)
    return ()


def _claim(turn: Turn, fact: Probed, before: tuple[Effect, ...], call: Effect) -> Step:
    """Take the turn for one more call, or fail it at the cap.

    The count starts again when the thread stands at another checkpoint than at the last claim:
    the turn made progress since.
    """
    checkpoint_id = _view(fact).checkpoint_id
    attempts = _attempts(turn, _view(fact))
    if not turn.free_claim and attempts >= fact.findings.max_attempts:
        return turn, (Fail(_exhausted(turn)),)
    cost = 0 if turn.free_claim else 1
    first = turn.claim is Claim.FIRST and isinstance(call, Dispatch)
    claimed = replace(
        turn,
        state=TurnState.RUNNING,
        token=fact.new_token,
        attempts=attempts + cost,
        redrives=turn.redrives + cost,
        claimed_checkpoint=checkpoint_id,
        claim=Claim.FIRST if first else Claim.COUNTED if cost else Claim.FREE,
        free_claim=False,
    )
    return claimed, (*before, call)


def _attempts(turn: Turn, view: AgentView) -> int:
    """Attempts since the last progress: a thread at another checkpoint has made some."""
    return turn.attempts if view.checkpoint_id == turn.claimed_checkpoint else 0


def _exhausted(turn: Turn) -> Failure:
    words = f"The turn was re-driven {turn.attempts} times from the same step without progress."
    return Failure(FailureCode.ATTEMPTS_EXHAUSTED, words)


def _view(fact: Probed) -> AgentView:
    if fact.findings.view is None:
        message = "this row needs the agent's answer"
        raise ImpossibleFactError(message)
    return fact.findings.view


ROWS: Mapping[Row, Callable[[Turn, Probed], Step]] = {
    Row.TERMINAL_IN_LOG: _close,
    Row.AGENT_SILENT: _wait_for_agent,
    Row.RUN_ACTIVE: _drain_run,
    Row.END_WANTED: _end_wanted,
    Row.NOT_STARTED: _dispatch_again,
    Row.FINISHED: _bring_result,
    Row.GRAPH_ERROR: _graph_failed,
    Row.DECIDED: _deliver_decisions,
    Row.UNDECIDED: _park,
    Row.IN_THE_MIDDLE: _continue,
}

_RUNNING_ROWS = frozenset({Row.NOT_STARTED, Row.FINISHED, Row.DECIDED, Row.IN_THE_MIDDLE})
