from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from vystak_turns_agent.render import Ledger
from vystak_turns_agent.stream import Live

ROOT = {"langgraph_checkpoint_ns": "node:1"}
NESTED = {"langgraph_checkpoint_ns": "node:1|inner:2"}


def kinds(live: Live, mode: str, data: Any) -> list[str]:
    return [str(event["type"]).split(".", 1)[1] for event in live.feed(mode, data)]


def chunk(text: str, message_id: str = "a1", where: Any = ROOT) -> tuple[BaseMessage, Any]:
    return AIMessageChunk(content=text, id=message_id), where


def committed(number: int, *messages: BaseMessage, source: str = "loop", ns: str = "") -> Any:
    configurable = {"checkpoint_id": f"ck-{number}", "checkpoint_ns": ns}
    return {
        "config": {"configurable": configurable},
        "metadata": {"source": source},
        "values": {"messages": list(messages)},
    }


def test_text_is_told_ahead_and_finished_by_its_commit() -> None:
    live = Live(Ledger())
    assert kinds(live, "messages", chunk("he")) == ["output_text.delta"]
    done = kinds(live, "checkpoints", committed(1, AIMessage("hello", id="a1")))
    assert done == ["output_text.delta", "output_text.done", "checkpoint"]
    assert live.replies == ["hello"]


def test_thinking_chunks_are_not_told_and_blocks_are_told_as_text() -> None:
    live = Live(Ledger())
    thinking: Any = [{"type": "thinking", "thinking": "hm"}]
    blocks: Any = [{"type": "text", "text": "so "}, {"type": "text", "text": "be it"}]

    assert kinds(live, "messages", (AIMessageChunk(content=thinking, id="a1"), ROOT)) == []
    (event,) = live.feed("messages", (AIMessageChunk(content=blocks, id="a1"), ROOT))

    assert event["delta"] == "so be it"


def test_the_checkpoint_that_the_run_started_from_is_not_marked_again() -> None:
    live = Live(Ledger(), last_marker="ck-1", reached="ck-1")
    assert kinds(live, "checkpoints", committed(1)) == []


def test_nested_checkpoints_and_nested_words_are_not_told() -> None:
    live = Live(Ledger())
    assert kinds(live, "messages", chunk("x", where=NESTED)) == []
    assert kinds(live, "checkpoints", committed(1, AIMessage("x", id="a1"), ns="inner")) == []


def test_a_rollback_names_the_last_marker_and_is_followed_by_the_whole_step() -> None:
    live = Live(Ledger(), last_marker="ck-0")
    list(live.feed("messages", chunk("private")))
    events = list(live.feed("checkpoints", committed(1, AIMessage("public", id="a2"))))
    assert events[0] == {"type": "vystak.rollback", "checkpoint_id": "ck-0"}
    assert events[1]["delta"] == "public"


def test_words_of_an_older_message_are_not_told_again() -> None:
    live = Live(Ledger({"a1"}))
    assert kinds(live, "messages", chunk("again")) == []


def test_only_tasks_of_a_parallel_step_are_told_before_the_commit() -> None:
    result = {"id": "1", "result": {"messages": [ToolMessage("x", tool_call_id="c")]}}
    alone, both = Live(Ledger()), Live(Ledger())
    alone_told = [*kinds(alone, "tasks", {"id": "1"}), *kinds(alone, "tasks", result)]
    for number in ("1", "2"):
        assert kinds(both, "tasks", {"id": number}) == []
    assert alone_told == []
    assert kinds(both, "tasks", result) == ["output_item.added"]
    assert kinds(both, "tasks", {**result, "error": ValueError()}) == []
    assert kinds(both, "tasks", {**result, "interrupts": [{"id": "i"}]}) == []


def test_a_parallel_result_that_was_told_is_not_told_at_the_commit() -> None:
    live = Live(Ledger())
    live.assume_told([ToolMessage("x", tool_call_id="c")])
    kept = ToolMessage("x", tool_call_id="c", id="t1")
    assert kinds(live, "checkpoints", committed(1, kept)) == ["checkpoint"]


def test_a_parallel_result_that_was_changed_before_the_commit_is_taken_back() -> None:
    live = Live(Ledger())
    live.assume_told([ToolMessage("x", tool_call_id="c")])
    kept = ToolMessage("y", tool_call_id="c", id="t1")
    told = kinds(live, "checkpoints", committed(1, kept))
    assert told == ["rollback", "output_item.added", "checkpoint"]


def test_a_park_takes_back_what_no_finished_task_returned() -> None:
    live = Live(Ledger())
    list(live.feed("messages", chunk("may I")))
    list(live.tell_finished([ToolMessage("x", tool_call_id="c")]))
    stopped = list(live.stopped([ToolMessage("x", tool_call_id="c")]))
    assert [event["type"] for event in stopped] == [
        "vystak.rollback",
        "response.output_item.added",
    ]


def test_a_park_keeps_what_finished_tasks_returned() -> None:
    live = Live(Ledger())
    list(live.feed("messages", chunk("don", "a1")))
    stopped = list(live.stopped([AIMessage("done", id="a1")]))
    assert [event.get("delta") for event in stopped] == ["e", None]
