"""The life of a turn as a table: `step(turn, fact) -> (turn, effects)`.

A turn is `queued` when its row is committed and `running` when its request was handed to the
agent. From then on there is one question only: where does it stand? Whenever the agent's stream
is gone without a terminal event, the turn is `probing`, and `probe.first_fitting_row` says how it
goes on. There is no second recovery path: the start of a process, a broken connection, a parked
graph and an accepted decision all come through `probing`.

The rules that shape the table:

* The new turn is committed before its effects are carried out, so every effect has its reason in
  the journal. The two exceptions are the events that end or park a turn: they are appended first
  and committed when the log has them (`TerminalAppended`, `ApprovalAsked`), since a reader must
  never wait for an event that a status already promises (R1, R8).
* A claim is a commit before an effect, too: it takes a token, which fences all drivers before it
  (R7), and counts an attempt, so that a turn that kills whoever touches it ends at the cap (R9).
* A fact of a driver that is not the journal's one any more changes nothing (R7).
* `cancelling` is `probing` with a committed end: row 4 closes it, unless a terminal event is in
  the log already.

Pairs of state and fact that are not in the table cannot happen; `step` raises for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

from vystak_turns.core import probe
from vystak_turns.core.effects import (
    AskApproval,
    CatchUp,
    Dispatch,
    Drain,
    Effect,
    Fail,
    ForgetBoundary,
    Pace,
    Probe,
    Resume,
    Rewind,
    StandDown,
)
from vystak_turns.core.facts import (
    ApprovalAsked,
    BoundaryReached,
    CallRefused,
    CaughtUp,
    DecisionGiven,
    DriverStarted,
    EndWanted,
    EventRefused,
    Fact,
    LetGo,
    LogMoved,
    LogRestarted,
    Probed,
    Refusal,
    RewindDecided,
    SeqsReserved,
    StreamEnd,
    StreamEnded,
    TerminalAppended,
)
from vystak_turns.core.findings import AgentView, Findings, Terminal
from vystak_turns.core.probe import Row
from vystak_turns.core.turn import Boundary, Claim, Decision, Failure, Intent, Park, Turn
from vystak_turns_rpc.vocabulary import FailureCode, TurnState

Step: TypeAlias = tuple[Turn, tuple[Effect, ...]]


class ImpossibleFactError(Exception):
    """A fact that cannot be true of a turn in this state: a defect, never an ordinary case."""


def step(turn: Turn, fact: Fact) -> Step:
    """Return the turn after `fact`, and what is to be done.

    Raises:
        ImpossibleFactError: the pair of state and fact is not in the table.

    """
    rule = TABLE.get((turn.state, type(fact)))
    if rule is None:
        message = f"{type(fact).__name__} cannot happen to a turn that is {turn.state}"
        raise ImpossibleFactError(message)
    token = getattr(fact, "token", None)
    if token is not None and token != turn.token:
        return turn, (StandDown(),)
    return rule(turn, fact)


def _dispatch_first(turn: Turn, fact: DriverStarted) -> Step:
    started = replace(turn, state=TurnState.RUNNING, token=fact.new_token, seq_limit=fact.seq_limit)
    return started, (Dispatch(),)


def _take_over(turn: Turn, fact: DriverStarted) -> Step:
    return _ask_again(turn, fact.new_token), (Probe(),)


def _ask_again(turn: Turn, new_token: int) -> Turn:
    """Enter `probing` (or stay `cancelling`) with a token that fences the driver before."""
    state = TurnState.CANCELLING if turn.intent else TurnState.PROBING
    return replace(turn, state=state, token=new_token, claim=Claim.NONE)


def _stream_ended(turn: Turn, fact: StreamEnded) -> Step:
    # A run that drained finished its step in order: the next claim is not a sign of trouble (R12).
    in_order = fact.how is StreamEnd.DRAINED
    asking = replace(_ask_again(turn, fact.new_token), free_claim=turn.free_claim or in_order)
    return asking, (Probe(),)


def _log_moved(turn: Turn, fact: LogMoved) -> Step:
    return _ask_again(turn, fact.new_token), (Probe(),)


def _event_refused(turn: Turn, fact: EventRefused) -> Step:
    failure = Failure(FailureCode.EVENT_TOO_LARGE, fact.words)
    return turn, (Drain(), Fail(failure))


def _call_refused(turn: Turn, fact: CallRefused) -> Step:
    returned = _give_back(turn)
    if fact.refusal is Refusal.WRONG:
        failure = Failure(FailureCode.AGENT_REFUSED, fact.words)
        return returned, (Fail(failure),)
    asking = _ask_again(returned, fact.new_token)
    if fact.refusal is Refusal.UNKNOWN_CHECKPOINT and fact.after is not None:
        return asking, (ForgetBoundary(fact.after), Probe())
    return asking, (Probe(Pace.LATER),)


def _give_back(turn: Turn) -> Turn:
    """Undo what the last claim cost: its call started nothing."""
    match turn.claim:
        case Claim.COUNTED:
            spent = max(turn.attempts - 1, 0)
            return replace(
                turn, attempts=spent, redrives=max(turn.redrives - 1, 0), claim=Claim.NONE
            )
        case Claim.FREE:
            return replace(turn, free_claim=True, claim=Claim.NONE)
        case Claim.NONE:
            return turn
        case _:
            assert_never(turn.claim)


def _caught_up(turn: Turn, _fact: CaughtUp) -> Step:
    return turn, (Probe(),)


def _probed(turn: Turn, fact: Probed) -> Step:
    row = probe.first_fitting_row(turn, fact.findings)
    return ROWS[row](turn, fact)


def _close(turn: Turn, fact: Probed) -> Step:
    tail = fact.findings.tail
    if tail is None or not isinstance(tail.what, Terminal):
        message = "row 1 without a terminal event"
        raise ImpossibleFactError(message)
    seq = turn.last_seq if tail.seq is None else tail.seq
    return _end(turn, seq, tail.what.failure), ()


def _end(turn: Turn, seq: int, failure: Failure | None) -> Turn:
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
        return turn, (Fail(_exhausted(turn)),)
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
    rewind = _rewind_to(turn, fact.findings, boundary)
    return _claim(turn, fact, rewind, Resume(catch_up=True, after=boundary))


def _deliver_decisions(turn: Turn, fact: Probed) -> Step:
    decisions = _pending_decisions(turn, _view(fact))
    if turn.park is not None and probe.asks_already(fact.findings.tail, turn.park):
        # Nothing was lost: readers saw everything up to the question (no rewind on a park).
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
        return _parked(turn, park, seq), ()
    if _same_questions(turn, view) or probe.is_caught_up(findings, view):
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


def _same_questions(turn: Turn, view: AgentView) -> bool:
    """Whether this is the park that readers know already, of which one more question is asked."""
    if turn.park is None:
        return False
    known = {q.interrupt_id for q in turn.park.questions}
    return known == {q.interrupt_id for q in view.questions}


def _parked(turn: Turn, park: Park, seq: int) -> Turn:
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
    attempts = turn.attempts if checkpoint_id == turn.claimed_checkpoint else 0
    if not turn.free_claim and attempts >= fact.findings.max_attempts:
        return turn, (Fail(_exhausted(turn)),)
    cost = 0 if turn.free_claim else 1
    claimed = replace(
        turn,
        state=TurnState.RUNNING,
        token=fact.new_token,
        attempts=attempts + cost,
        redrives=turn.redrives + cost,
        claimed_checkpoint=checkpoint_id,
        claim=Claim.COUNTED if cost else Claim.FREE,
        free_claim=False,
    )
    return claimed, (*before, call)


def _exhausted(turn: Turn) -> Failure:
    words = f"The turn was re-driven {turn.attempts} times from the same step without progress."
    return Failure(FailureCode.ATTEMPTS_EXHAUSTED, words)


def _view(fact: Probed) -> AgentView:
    if fact.findings.view is None:
        message = "this row needs the agent's answer"
        raise ImpossibleFactError(message)
    return fact.findings.view


def _seqs_reserved(turn: Turn, fact: SeqsReserved) -> Step:
    return replace(turn, seq_limit=max(turn.seq_limit, fact.limit)), ()


def _boundary_reached(turn: Turn, fact: BoundaryReached) -> Step:
    seq = fact.boundary.seq
    return replace(turn, boundary_seq=seq, last_seq=max(seq, turn.last_seq)), ()


def _rewind_decided(turn: Turn, fact: RewindDecided) -> Step:
    return replace(turn, boundary_seq=-1 if fact.target is None else fact.target.seq), ()


def _log_restarted(turn: Turn, fact: LogRestarted) -> Step:
    return replace(turn, origin_seq=fact.seq, last_seq=max(fact.seq, turn.last_seq)), ()


def _approval_asked(turn: Turn, fact: ApprovalAsked) -> Step:
    parked = _parked(turn, fact.park, fact.seq)
    if turn.intent is not None:
        return replace(parked, state=TurnState.CANCELLING), (Probe(),)
    return parked, ()


def _terminal_appended(turn: Turn, fact: TerminalAppended) -> Step:
    return _end(turn, fact.seq, fact.failure), ()


def _decision_given(turn: Turn, fact: DecisionGiven) -> Step:
    if turn.park is None:
        message = "a parked turn without a question"
        raise ImpossibleFactError(message)
    decision = Decision(turn.park.asked, fact.value)
    decided = replace(turn.park, decisions=(*turn.park.decisions, decision))
    # An accepted decision is progress, and its first delivery is no retry.
    waiting = replace(
        turn,
        state=TurnState.PROBING,
        park=decided,
        attempts=0,
        claimed_checkpoint=None,
        claim=Claim.NONE,
        free_claim=True,
    )
    return waiting, (Probe(),)


def _end_before_dispatch(turn: Turn, fact: EndWanted) -> Step:
    return replace(turn, state=TurnState.CANCELLING, intent=fact.intent), (Probe(),)


def _end_while_driven(turn: Turn, fact: EndWanted) -> Step:
    # The driver reads on: a result that comes before the run has drained is faster than the end.
    return replace(turn, state=TurnState.CANCELLING, intent=fact.intent), (Drain(),)


def _keep_first_end(turn: Turn, _fact: EndWanted) -> Step:
    return turn, ()


def _let_go(turn: Turn, _fact: LetGo) -> Step:
    return replace(turn, free_claim=True), ()


def _nothing_to_let_go(turn: Turn, _fact: LetGo) -> Step:
    return turn, ()


Rule: TypeAlias = Callable[[Turn, Any], Step]

ROWS: Mapping[Row, Rule] = {
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

_LOG_FACTS: dict[type, Rule] = {
    SeqsReserved: _seqs_reserved,
    BoundaryReached: _boundary_reached,
    RewindDecided: _rewind_decided,
    LogRestarted: _log_restarted,
    LogMoved: _log_moved,
    EventRefused: _event_refused,
    TerminalAppended: _terminal_appended,
}
_STREAM_FACTS: dict[type, Rule] = {StreamEnded: _stream_ended, CallRefused: _call_refused}
_PROBE_FACTS: dict[type, Rule] = {
    Probed: _probed,
    CaughtUp: _caught_up,
    ApprovalAsked: _approval_asked,
}

_BY_STATE: Mapping[TurnState, dict[type, Rule]] = {
    TurnState.QUEUED: {
        DriverStarted: _dispatch_first,
        EndWanted: _end_before_dispatch,
        LetGo: _nothing_to_let_go,
    },
    TurnState.RUNNING: {
        DriverStarted: _take_over,
        EndWanted: _end_while_driven,
        LetGo: _let_go,
        **_LOG_FACTS,
        **_STREAM_FACTS,
    },
    TurnState.PROBING: {
        DriverStarted: _take_over,
        EndWanted: _end_while_driven,
        LetGo: _nothing_to_let_go,
        **_LOG_FACTS,
        **_STREAM_FACTS,
        **_PROBE_FACTS,
    },
    TurnState.PARKED: {DecisionGiven: _decision_given, EndWanted: _end_before_dispatch},
    TurnState.CANCELLING: {
        DriverStarted: _take_over,
        EndWanted: _keep_first_end,
        LetGo: _nothing_to_let_go,
        **_LOG_FACTS,
        **_STREAM_FACTS,
        **_PROBE_FACTS,
    },
    TurnState.COMPLETED: {},
    TurnState.FAILED: {},
    TurnState.CANCELLED: {},
}

TABLE: Mapping[tuple[TurnState, type], Rule] = {
    (state, fact): rule for state, rules in _BY_STATE.items() for fact, rule in rules.items()
}
