from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from vystak_turns_agent.render import (
    History,
    Step,
    item_id_of,
    ledger_of,
    render,
    reply_text,
    results_of,
    text_of,
)

CALL = {"name": "look", "args": {"at": "ü"}, "id": "c1", "type": "tool_call"}


def step(number: int, *messages: BaseMessage, source: str = "loop") -> Step:
    return Step(f"ck-{number}", source, messages)


ASKED = HumanMessage("hi", id="h1")
CLOSED = ToolMessage("not done", tool_call_id="old", id="closed-old")
CALLED = AIMessage("looking", id="a1", tool_calls=[CALL])
FOUND = ToolMessage([{"type": "text", "text": "x"}], tool_call_id="c1", id="t1", status="error")
TURN = History(
    frozenset({"earlier"}),
    (
        step(1, source="input"),
        step(2, CLOSED, ASKED),
        step(3, CLOSED, ASKED, CALLED),
        step(4, CLOSED, ASKED, CALLED, FOUND),
    ),
)


def told(history: History, after: str | None = None) -> list[tuple[str, Any]]:
    pairs = []
    for event in render(history, after):
        detail = event.get("delta") or event.get("checkpoint_id") or event.get("item")
        pairs.append((event["type"].removeprefix("response."), detail))
    return pairs


def test_a_call_belongs_to_its_messages_step_and_a_result_to_its_own() -> None:
    assert [pair for pair in told(TURN) if pair[1]] == [
        ("vystak.checkpoint", "ck-2"),
        ("output_text.delta", "looking"),
        (
            "output_item.added",
            {"type": "function_call", "id": "c1", "call_id": "c1", "name": "look", "arguments": ""},
        ),
        ("function_call_arguments.delta", '{"at": "ü"}'),
        ("vystak.checkpoint", "ck-3"),
        (
            "output_item.added",
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": '[{"type": "text", "text": "x"}]',
                "error": True,
            },
        ),
        ("vystak.checkpoint", "ck-4"),
    ]


def test_the_input_and_what_closes_open_calls_are_not_shown() -> None:
    before_the_first_marker = told(TURN)[0]
    assert before_the_first_marker == ("vystak.checkpoint", "ck-2")


def test_rendering_after_a_checkpoint_is_exactly_the_rest() -> None:
    whole = list(render(TURN))
    for place, event in enumerate(whole):
        if event["type"] == "vystak.checkpoint":
            assert list(render(TURN, event["checkpoint_id"])) == whole[place + 1 :]


def test_replacing_and_removing_show_nothing() -> None:
    later = (*TURN.steps, step(5, ASKED, AIMessage("other words", id="a1")))
    assert told(History(TURN.known, later), "ck-4") == [("vystak.checkpoint", "ck-5")]


def test_a_message_that_was_there_before_the_turn_is_not_shown() -> None:
    old = AIMessage("old", id="earlier")
    history = History(TURN.known, (step(1, old, source="input"), step(2, old), step(3, old)))
    assert told(history) == [("vystak.checkpoint", "ck-2"), ("vystak.checkpoint", "ck-3")]


def test_checkpoints_that_are_not_the_loops_show_nothing() -> None:
    history = History(frozenset(), (step(1, AIMessage("x", id="a"), source="update"),))
    assert told(history) == []


def test_results_of_finished_tasks_come_last_without_a_marker() -> None:
    late = ToolMessage("late", tool_call_id="c2")
    unnamed = AIMessage("no id before the commit")
    history = History(TURN.known, TURN.steps, (late, unnamed, CALLED))
    assert [kind for kind, _ in told(history, "ck-4")] == ["output_item.added"]


def test_the_reply_is_the_text_of_all_ai_messages_as_first_committed() -> None:
    more = step(5, CALLED.model_copy(update={"content": "changed"}), AIMessage(" done", id="a2"))
    assert reply_text(History(TURN.known, (*TURN.steps, more))) == "looking done"


def test_a_ledger_goes_on_where_the_history_ends() -> None:
    ledger = ledger_of(TURN)
    fresh = AIMessage("new", id="a9")
    assert ledger.admit(step(5, ASKED, CALLED, FOUND, fresh)) == [fresh]
    killed_after_its_input = ledger_of(History(frozenset(), (step(1, source="input"),)))
    assert killed_after_its_input.admit(step(2, ASKED, CLOSED)) == []


def test_thinking_is_no_text() -> None:
    blocks: list[str | dict[Any, Any]] = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "so"},
        "!",
    ]
    assert text_of(AIMessage(content=blocks)) == "so!"


def test_item_ids_have_the_wires_form_and_depend_on_the_message_only() -> None:
    assert item_id_of("m1") == item_id_of("m1") != item_id_of("m2")
    assert len(item_id_of("m1").removeprefix("msg_")) == 12


def test_a_tasks_result_may_have_any_form() -> None:
    one, two = AIMessage("1"), AIMessage("2")
    assert results_of({"messages": one}) == [one]
    assert results_of({"messages": [one, ("user", "x")]}) == [one]
    assert results_of({"messages": {"$writes": [[one], two]}}) == [one, two]
    assert results_of({"other": 1}) == results_of(None) == results_of([one]) == []
