"""A judge who never objects proves nothing: each rule is broken here once, and found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from tests.crash.evidence import StepRun, Stored
from tests.crash.flows import Step
from tests.crash.judge import Case, Wrong, violations
from tests.crash.panel import Decided, Poll, Seen
from tests.crash.processes import Life
from tests.support.checkers import Logged
from vystak_turns_client.reader import LoggedMessage
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import WireStatus

TAG = "t1x0"
LABELS = [f"{TAG}.{word}" for word in ("one", "two", "three")]
KILLED, LIVING = 11, 12
LIVES = {KILLED: Life("steps", KILLED, 20.0, -9)}


def thread() -> list[Any]:
    messages: list[Any] = []
    for label in LABELS:
        call = {"id": label, "name": "slow_step", "args": {}}
        messages.append(AIMessage(f"{label} now. ", tool_calls=[call]))
        messages.append(ToolMessage("done", tool_call_id=label))
    return [*messages, AIMessage("All done.")]


def events() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for label in LABELS:
        found.append(said(label, f"{label} now. "))
        call = {"type": "function_call", "call_id": label, "name": "slow_step", "arguments": ""}
        found.append({"type": "response.output_item.added", "item": call})
        whole = {"type": "response.function_call_arguments.done", "call_id": label}
        delta = {"type": "response.function_call_arguments.delta", "call_id": label, "delta": "{}"}
        found += [delta, {**whole, "arguments": "{}"}, output(label)]
    return [*found, said("last", "All done."), completed()]


def said(item_id: str, text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": item_id, "delta": text}


def output(label: str) -> dict[str, Any]:
    item = {"type": "function_call_output", "call_id": label, "output": "done", "error": False}
    return {"type": "response.output_item.added", "item": item}


def completed() -> dict[str, Any]:
    text = "".join(f"{label} now. " for label in LABELS) + "All done."
    part = {"content": [{"type": "output_text", "text": text}]}
    return {"type": "response.completed", "response": {"output": [part]}}


def failed(code: str) -> dict[str, Any]:
    error = {"code": code, "message": "as you wished"}
    return {"type": "response.failed", "response": {"error": error}}


def case_of(told: list[dict[str, Any]], step: Step | None = None) -> Case:
    log = [Stored(10 + n, 30.0 + n, 5, Logged(n, event)) for n, event in enumerate(told)]
    read = [LoggedMessage(s.logged.seq, dict(s.logged.event), s.stream_seq) for s in log]
    seen = Seen(TAG, step or Step("steps"), "t1", "subject", {}, acknowledged_at=1.0, read=read)
    done = TurnStatusResult(status=WireStatus.DONE)
    seen.polls.append(Poll(100.0, 0.1, done))
    runs = [StepRun(label, LIVING, 30.0 + n, 31.0 + n) for n, label in enumerate(LABELS)]
    return Case(seen, log, thread(), runs, {"status": "done", "state": "completed"}, LIVES)


def good() -> Case:
    return case_of(events())


def found(case: Case) -> set[Wrong]:
    return {violation.wrong for violation in violations(case)}


def test_a_good_turn_is_not_objected_to() -> None:
    assert list(violations(good())) == []


def test_a_step_in_flight_when_its_agent_was_killed_may_run_again() -> None:
    case = good()
    before = StepRun(LABELS[1], KILLED, 19.0, None)

    assert found(replace(case, runs=[case.runs[0], before, *case.runs[1:]])) == set()


def test_what_a_rewind_took_back_does_not_count() -> None:
    told = [*events()[:7], {"type": "vystak.turn.rewind", "to_seq": 4}, *events()[5:]]

    assert found(case_of(told)) == set()


Change = Callable[[Case], Case]


def retold(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Change:
    return lambda _: case_of(change(events()))


def rerun(*runs: StepRun) -> Change:
    return lambda case: replace(case, runs=sorted([*case.runs, *runs], key=lambda r: r.started_at))


def decided(*decisions: Decided, told: str = "") -> Change:
    """A turn that asks, at the end of which the graph says what it was told."""

    def change(case: Case) -> Case:
        case.seen.decided += decisions
        return replace(case, thread=[*thread(), AIMessage(told)])

    return change


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        pytest.param(retold(lambda told: told[:4] + told[5:]), Wrong.LOSS, id="no result"),
        pytest.param(retold(lambda told: told[1:]), Wrong.LOSS, id="no text"),
        pytest.param(retold(lambda told: [*told[:1], *told]), Wrong.DUPLICATE, id="text twice"),
        pytest.param(retold(lambda told: told[:5] + told[4:]), Wrong.DUPLICATE, id="result twice"),
        pytest.param(
            retold(lambda told: [said(LABELS[0], f"{LABELS[1]} now. "), *told[1:]]),
            Wrong.DIVERGENCE,
            id="other text",
        ),
        pytest.param(retold(lambda told: told[:-1]), Wrong.LOSS, id="no end"),
        pytest.param(retold(lambda told: [*told, completed()]), Wrong.OTHER, id="two ends"),
        pytest.param(
            retold(lambda told: [*told[:-1], failed("cancelled")]), Wrong.OTHER, id="other end"
        ),
        pytest.param(
            lambda case: replace(case, log=[*case.log[:3], *case.log[4:]]), Wrong.OTHER, id="gap"
        ),
        pytest.param(
            lambda case: replace(case, log=[replace(case.log[0], token=9), *case.log[1:]]),
            Wrong.OTHER,
            id="older driver",
        ),
        pytest.param(lambda case: replace(case, row=None), Wrong.LOSS, id="not journaled"),
        pytest.param(
            lambda case: replace(case, row={"status": "running", "state": "running"}),
            Wrong.STATUS,
            id="journal disagrees",
        ),
        pytest.param(lambda case: replace(case, thread=None), Wrong.LOSS, id="no thread"),
        pytest.param(lambda case: replace(case, runs=case.runs[:2]), Wrong.LOSS, id="no step"),
        pytest.param(
            rerun(StepRun(LABELS[0], LIVING, 35.0, 36.0)), Wrong.DUPLICATE, id="step again"
        ),
        pytest.param(
            rerun(StepRun(LABELS[2], LIVING, 40.0, None)), Wrong.DUPLICATE, id="in one life"
        ),
        pytest.param(
            lambda case: replace(
                rerun(StepRun(LABELS[0], KILLED, 10.0, 11.0))(case),
                lives={KILLED: Life("steps", KILLED, 20.0, 0)},
            ),
            Wrong.DUPLICATE,
            id="after an orderly stop",
        ),
        pytest.param(
            lambda case: replace(
                rerun(StepRun(LABELS[0], KILLED, 10.0, None))(case),
                lives={KILLED: Life("steps", KILLED, 50.0, -9)},
            ),
            Wrong.DUPLICATE,
            id="two at a time",
        ),
        pytest.param(decided(told="word-0123456789"), Wrong.OTHER, id="nobody decided"),
        pytest.param(
            decided(Decided(1, "word-0123456789", acknowledged=True)),
            Wrong.LOSS,
            id="decision lost",
        ),
        pytest.param(
            decided(Decided(1, "word-0123456789", acknowledged=False), told="word-0123456789"),
            Wrong.OTHER,
            id="refused decision",
        ),
        pytest.param(
            decided(Decided(1, "a", acknowledged=True), Decided(1, "b", acknowledged=True)),
            Wrong.OTHER,
            id="two decisions",
        ),
    ],
)
def test_a_broken_rule_is_found(change: Change, wrong: Wrong) -> None:
    assert wrong in found(change(good()))


def test_a_reader_who_missed_a_message_is_found() -> None:
    case = good()
    del case.seen.read[3]

    assert found(case) == {Wrong.DIVERGENCE}


def test_an_end_that_is_told_before_it_is_logged_is_found() -> None:
    case = good()
    case.seen.polls.insert(0, Poll(1.0, 0.1, TurnStatusResult(status=WireStatus.DONE)))

    assert found(case) == {Wrong.STATUS}


def test_a_status_that_moves_on_after_the_end_is_found() -> None:
    case = good()
    case.seen.polls.append(Poll(101.0, 0.1, TurnStatusResult(status=WireStatus.RUNNING)))

    assert found(case) == {Wrong.STATUS}


def test_a_turn_that_was_cancelled_too_late_may_be_done() -> None:
    step = Step("steps", ends=WireStatus.FAILED, code="cancelled", cancel_after_s=1.0)

    assert found(case_of(events(), step)) == set()
