"""What stays of a turn: the parts of its row, in the shapes that panels know."""

from __future__ import annotations

from typing import Any

from tests.support.turn_events import asks, called, delta, log, result, rewind
from vystak_turns_client.fold import Approval, End, Outcome, fold
from vystak_turns_client.rows import final_row, given_up_row, parts, pending_part, waiting_row
from vystak_turns_client.storage import ActiveTurn, RowState
from vystak_turns_rpc import events

TURN = ActiveTurn("c", "t", "vystak.default.streams.c.t")
COMPLETED = End(Outcome.COMPLETED)
FAILED = End(Outcome.FAILED, "broken")


def parts_of(*said: dict[str, Any]) -> list[dict[str, Any]]:
    seen = fold(log(*said))
    return list(parts(seen, seen.approval))


def tool(call_id: str, name: str, output: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "tool",
        "state": "output-available",
        "tool_call_id": call_id,
        "tool_name": name,
        "input": "{}",
        "output": output,
        "is_error": False,
        **more,
    }


PENDING_RM = {
    "type": "tool",
    "state": "approval-requested",
    "tool_call_id": "approval:rm",
    "tool_name": "rm",
    "input": '{"name": "é"}',
    "output": "",
    "is_error": False,
}


def test_texts_and_answered_calls_are_parts_and_a_call_without_result_is_none() -> None:
    said = [
        delta("a"),
        *called("c1", "ls"),
        result("c1", "x"),
        *called("c2", "rm"),
        delta("b", "m2"),
    ]
    assert parts_of(*said) == [
        {"type": "text", "text": "a"},
        tool("c1", "ls", "x"),
        {"type": "text", "text": "b"},
    ]


def test_a_question_is_the_last_part() -> None:
    assert parts_of(delta("a"), asks("rm", name="é")) == [{"type": "text", "text": "a"}, PENDING_RM]


def test_a_resolved_call_replaces_its_question_and_the_stop_before_it() -> None:
    stopped = [*called("c1", "rm"), result("c1", "Interrupt()", error=True)]
    assert parts_of(*stopped, asks("rm", name="é")) == [PENDING_RM]
    answered = [*stopped, asks("rm", name="é"), *called("c2", "rm"), result("c2", "gone")]
    assert parts_of(*answered) == [tool("c2", "rm", "gone")]


def test_a_denial_survives_a_later_question_of_the_same_tool() -> None:
    denied = [*called("c1", "rm"), result("c1", "Denied by me: no")]
    assert parts_of(*denied, asks("rm", name="é")) == [
        tool("c1", "rm", "Denied by me: no"),
        PENDING_RM,
    ]


def test_parts_of_tools_are_taken_back_by_a_rewind_and_come_again() -> None:
    said = [delta("a"), *called("c1", "ls"), result("c1", "x"), *called("c2", "ls")]
    kept = [*said, result("c2", "lost"), rewind(4)]
    assert parts_of(*kept) == [{"type": "text", "text": "a"}, tool("c1", "ls", "x")]
    again = [*kept, *called("c2", "ls"), result("c2", "y"), delta("b")]
    assert parts_of(*again) == [
        {"type": "text", "text": "ab"},
        tool("c1", "ls", "x"),
        tool("c2", "ls", "y"),
    ]
    assert parts_of(*kept, rewind(-1)) == []


def test_two_calls_of_one_tool_at_the_same_time_both_keep_their_results() -> None:
    said = [*called("c1", "ls"), *called("c2", "ls"), result("c2", "y"), result("c1", "x")]
    assert parts_of(*said) == [tool("c1", "ls", "x"), tool("c2", "ls", "y")]


def test_a_question_that_is_no_tool_s_is_shown_as_it_is() -> None:
    assert pending_part(Approval({"q": 1}, 1, "i"))["input"] == '{"q": 1}'
    assert pending_part(Approval("sure?", 1, "i"))["tool_call_id"] == "approval:"


def test_a_completed_turn_has_a_row_even_if_it_is_empty() -> None:
    row = final_row(TURN, fold([]), COMPLETED, None)
    assert row is not None
    assert (row.content, row.parts, row.state) == ("", (), RowState.DONE)


def test_a_failed_turn_keeps_what_there_is_and_leaves_no_row_without() -> None:
    row = final_row(TURN, fold(log(delta("part"))), FAILED, None)
    assert row is not None
    assert (row.content, row.state, row.error) == ("part", RowState.FAILED, "broken")
    assert final_row(TURN, fold([]), FAILED, None) is None
    assert given_up_row(TURN, fold([]), None, "gone") is None


def test_a_row_whose_log_is_gone_keeps_its_text_but_not_its_question() -> None:
    asked = fold(log(delta("a"), asks("rm")))
    stored = waiting_row(TURN, asked, asked.approval)
    assert stored.state is RowState.PARKED
    row = given_up_row(TURN, fold([]), stored, "gone")
    assert row is not None
    assert row.parts == ({"type": "text", "text": "a"},)
    assert (row.content, row.state, row.error) == ("a", RowState.ERROR, "gone")


def test_a_question_of_ours_makes_the_same_part() -> None:
    payload = {"kind": "tool_approval", "tool": "rm", "args": {"name": "é"}, "skill": "s"}
    assert parts_of(events.approval_requested(payload, 1, "i")) == [PENDING_RM]
