from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from vystak_turns_client.fold import (
    Approval,
    End,
    Fold,
    Outcome,
    Text,
    ToolCall,
    Transcript,
    fold,
)
from vystak_turns_rpc import events
from vystak_turns_rpc.events import TurnMessage

CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
COMPLETED = {"type": "response.completed", "response": {"id": "resp_1", "output": []}}


def delta(text: str, item_id: str = "m1") -> dict[str, Any]:
    return {"type": events.TEXT_DELTA, "item_id": item_id, "delta": text}


def call(call_id: str, name: str = "tool") -> dict[str, Any]:
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
    return {"type": events.ITEM_ADDED, "item": item}


def arguments(call_id: str, text: str) -> dict[str, Any]:
    return {"type": events.ARGUMENTS_DELTA, "call_id": call_id, "delta": text}


def arguments_done(call_id: str, text: str) -> dict[str, Any]:
    return {"type": events.ARGUMENTS_DONE, "call_id": call_id, "arguments": text}


def output(call_id: str, text: Any, **more: Any) -> dict[str, Any]:
    item = {"type": "function_call_output", "call_id": call_id, "output": text, **more}
    return {"type": events.ITEM_ADDED, "item": item}


def log(*items: dict[str, Any]) -> list[TurnMessage]:
    return [TurnMessage(seq, event) for seq, event in enumerate(items)]


def test_nothing_read_is_an_empty_transcript() -> None:
    assert fold([]) == Transcript()
    assert fold([]).cursor == -1


def test_a_whole_turn_is_put_together() -> None:
    seen = fold(
        log(
            CREATED,
            delta("Let me "),
            delta("look."),
            call("c1", "search"),
            arguments("c1", '{"q":'),
            arguments("c1", "1}"),
            arguments_done("c1", '{"q":1}'),
            output("c1", "found"),
            delta("Done.", "m2"),
            {"type": events.TEXT_DONE, "item_id": "m2", "text": "Done."},
            COMPLETED,
        )
    )
    assert seen == Transcript(
        items=(
            Text("m1", "Let me look."),
            ToolCall("c1", "search", '{"q":1}', "found", is_error=False),
            Text("m2", "Done."),
        ),
        end=End(Outcome.COMPLETED),
        response_id="resp_1",
        cursor=10,
    )
    assert seen.text == "Let me look.Done."
    assert [tool.name for tool in seen.tool_calls] == ["search"]


def test_text_of_two_messages_that_comes_in_turns_stays_apart() -> None:
    seen = fold(log(delta("a", "x"), delta("1", "y"), delta("b", "x")))
    assert seen.items == (Text("x", "ab"), Text("y", "1"))


def test_an_item_and_a_call_with_the_same_id_are_two_things() -> None:
    seen = fold(log(delta("a", "x"), call("x", "t")))
    assert seen.items == (Text("x", "a"), ToolCall("x", "t", ""))


def test_a_failed_tool_is_marked_and_a_later_result_replaces_it() -> None:
    artifact = log(call("c"), output("c", "Interrupt(...)", error=True))
    assert fold(artifact).tool_calls == (ToolCall("c", "tool", "", "Interrupt(...)", True),)
    final = log(call("c"), output("c", "Interrupt(...)", error=True), output("c", "ok"))
    assert fold(final).tool_calls == (ToolCall("c", "tool", "", "ok", False),)


def test_a_call_that_begins_again_has_no_arguments_and_no_result_yet() -> None:
    seen = fold(log(call("c"), arguments("c", "{"), output("c", "x"), call("c", "new")))
    assert seen.tool_calls == (ToolCall("c", "new", ""),)


def test_an_output_that_is_no_text_is_shown_as_json() -> None:
    assert fold(log(output("c", {"a": "é"}))).tool_calls[0].output == '{"a": "é"}'


def test_a_rewind_keeps_what_is_not_above_it() -> None:
    kept = [CREATED, delta("kept"), call("c1"), output("c1", "one")]
    seen = fold(log(*kept, delta("lost", "m2"), call("c2"), events.rewind(3), delta("new", "m2")))
    assert seen.items == (
        Text("m1", "kept"),
        ToolCall("c1", "tool", "", "one"),
        Text("m2", "new"),
    )
    assert (seen.cursor, seen.rewinds) == (7, 1)


def test_a_rewind_in_the_middle_of_a_text_keeps_its_beginning() -> None:
    assert fold(log(delta("a"), delta("b"), events.rewind(0), delta("c"))).text == "ac"


def test_a_rewind_to_minus_one_drops_everything() -> None:
    seen = fold(log(CREATED, delta("a"), events.rewind(-1)))
    assert seen == Transcript(cursor=2, rewinds=1)


def test_a_second_rewind_acts_on_what_the_first_one_left() -> None:
    seen = fold(
        log(delta("a"), delta("b"), events.rewind(0), delta("c"), events.rewind(1), delta("d"))
    )
    assert seen.text == "ad"
    assert seen.rewinds == 2


def test_the_same_message_again_changes_nothing() -> None:
    once = log(delta("a"), delta("b"), call("c"), output("c", "x"), {"type": "vystak.unknown"})
    assert fold([*once, *once, once[0], once[-1]]) == fold(once)


def test_a_rewind_with_a_seq_that_was_seen_rewinds() -> None:
    """W15: the event with seq 2 was published, but not noted, before the crash."""
    crashed = [*log(delta("a"), delta("b"), delta("lost")), TurnMessage(2, events.rewind(1))]
    seen = fold([*crashed, TurnMessage(3, delta("c"))])
    assert (seen.text, seen.rewinds, seen.cursor) == ("abc", 1, 3)


def test_a_rewind_below_a_seq_that_was_seen_lets_the_same_events_come_again() -> None:
    """W17: crashed again, after the rewind and one event, neither of which was noted."""
    first = [*log(delta("a"), delta("lost")), TurnMessage(2, events.rewind(0))]
    again = [TurnMessage(3, delta("b")), TurnMessage(2, events.rewind(0))]
    seen = fold([*first, *again, TurnMessage(3, delta("b")), TurnMessage(4, delta("c"))])
    assert (seen.text, seen.rewinds, seen.cursor) == ("abc", 2, 4)


def test_the_first_event_after_a_park_counts_although_it_has_the_question_s_seq() -> None:
    """W16: the decision came before the question's seq was noted."""
    asked = log(delta("a"), {"type": events.APPROVAL_REQUESTED, "payload": {}})
    seen = fold([*asked, TurnMessage(1, delta("b")), TurnMessage(2, delta("c"))])
    assert (seen.text, seen.approval) == ("abc", None)
    kept = [*asked, TurnMessage(1, delta("b")), TurnMessage(2, delta("c"))]
    assert fold([*kept, TurnMessage(3, events.rewind(1))]).text == "ab"


def asks(tool: str) -> dict[str, Any]:
    return {"type": events.APPROVAL_REQUESTED, "payload": {"kind": "tool_approval", "tool": tool}}


def test_a_question_drops_the_failed_call_that_it_came_from() -> None:
    stopped = log(delta("a"), call("c1", "rm"), output("c1", "Interrupt()", error=True), asks("rm"))
    assert fold(stopped).items == (Text("m1", "a"),)
    later = [call("c2", "rm"), output("c2", "gone"), COMPLETED]
    seen = fold([*stopped, *(TurnMessage(4 + seq, event) for seq, event in enumerate(later))])
    assert seen.items == (Text("m1", "a"), ToolCall("c2", "rm", "", "gone"))


def test_a_question_drops_the_call_s_first_stop_but_not_its_later_result() -> None:
    stopped = log(call("c"), output("c", "Interrupt()", error=True), asks("tool"))
    answered = fold([*stopped, TurnMessage(3, output("c", "ok"))])
    assert answered.tool_calls == (ToolCall("c", "tool", "", "ok"),)


@pytest.mark.parametrize(
    "before",
    [
        [call("c", "rm"), output("c", "Denied by x: no")],
        [call("c", "ls"), output("c", "broken", error=True)],
        [call("c", "rm"), output("c", "broken", error=True), delta("so?")],
        [call("c", "rm"), output("c", "broken", error=True), call("d", "rm")],
    ],
    ids=["a denial", "another tool's error", "an error before a text", "an error before a call"],
)
def test_a_question_keeps(before: list[dict[str, Any]]) -> None:
    assert fold(log(*before, asks("rm"))).items == fold(log(*before)).items


def test_a_gap_in_the_seqs_is_permitted() -> None:
    assert fold([TurnMessage(4, delta("a")), TurnMessage(9, delta("b"))]).text == "ab"


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "vystak.keepalive"},
        {"type": events.TEXT_DELTA, "item_id": "m1", "delta": None},
        {"type": events.TURN_REWIND, "to_seq": "0"},
        {"type": events.ITEM_ADDED, "item": {"type": "image"}},
        {"type": events.CHECKPOINT, "checkpoint_id": "k"},
    ],
)
def test_what_is_not_understood_only_moves_the_cursor(event: dict[str, Any]) -> None:
    asked = [delta("a"), events.approval_requested({"q": 1}, 1, "i")]
    before = fold(log(*asked))
    assert fold(log(*asked, event)) == replace(before, cursor=2)


def test_an_approval_waits_until_the_turn_goes_on() -> None:
    asked = log(call("c"), events.approval_requested({"tool": "rm"}, 2, "i1"))
    assert fold(asked).approval == Approval({"tool": "rm"}, 2, "i1")
    assert fold([*asked, TurnMessage(2, output("c", "ok"))]).approval is None
    assert fold([*asked, TurnMessage(2, COMPLETED)]).approval is None


def test_an_approval_of_the_original_has_no_generation() -> None:
    seen = fold(log({"type": events.APPROVAL_REQUESTED, "payload": {"kind": "tool_approval"}}))
    assert seen.approval == Approval({"kind": "tool_approval"}, None, None)


def test_a_rewind_takes_a_question_back_and_brings_an_earlier_one_again() -> None:
    question = events.approval_requested("q", 1, "i")
    assert fold(log(delta("a"), question, events.rewind(0))).approval is None
    again = fold(log(question, delta("a"), events.rewind(0)))
    assert again.approval == Approval("q", 1, "i")


def test_a_failure_carries_its_words() -> None:
    seen = fold(log(delta("a"), events.failed("gone", "cancelled")))
    assert seen.end == End(Outcome.FAILED, "gone", "cancelled")
    assert seen.text == "a"


def test_a_terminal_event_that_is_malformed_still_ends() -> None:
    assert fold(log({"type": "response.failed", "response": 3})).end == End(Outcome.FAILED)
    assert fold(log({"type": "response.completed"})).end == End(Outcome.COMPLETED)


def test_nothing_counts_after_the_terminal_event() -> None:
    ended = log(delta("a"), COMPLETED)
    more = [TurnMessage(2, events.rewind(-1)), TurnMessage(3, delta("b"))]
    assert fold([*ended, *more]) == fold(ended)


def random_event(chance: random.Random) -> dict[str, Any]:
    number = chance.randrange(3)
    return chance.choice(
        [
            CREATED,
            delta(chance.choice("abc"), f"m{number}"),
            call(f"c{number}", chance.choice(["read", "write"])),
            arguments(f"c{number}", chance.choice("{}")),
            arguments_done(f"c{number}", "{}"),
            output(f"c{number}", chance.choice("xyz"), error=chance.random() < 0.5),
            events.approval_requested({"n": number}, number, f"i{number}"),
            {"type": "vystak.unknown"},
        ]
    )


def random_log(chance: random.Random) -> list[TurnMessage]:
    messages = []
    for seq in range(chance.randrange(1, 40)):
        rewinding = chance.random() < 0.2
        event = events.rewind(chance.randrange(-1, seq + 1)) if rewinding else random_event(chance)
        messages.append(TurnMessage(seq, event))
    if chance.random() < 0.3:
        messages.append(TurnMessage(len(messages), COMPLETED))
    return messages


def without_retracted(messages: list[TurnMessage]) -> list[TurnMessage]:
    kept: list[TurnMessage] = []
    for message in messages:
        if message.event.get("type") == events.TURN_REWIND:
            kept = [earlier for earlier in kept if earlier.seq <= message.event["to_seq"]]
        else:
            kept.append(message)
    return kept


def test_a_log_with_rewinds_shows_the_same_as_the_log_without_what_they_took_back() -> None:
    chance = random.Random(7)
    rewinds = 0
    for _ in range(2000):
        messages = random_log(chance)
        seen = fold(messages)
        rewinds += seen.rewinds
        plain = fold(without_retracted(messages))
        assert seen == replace(plain, cursor=seen.cursor, rewinds=seen.rewinds)
        assert seen.cursor == messages[-1].seq
    assert rewinds > 2000


def test_feeding_step_by_step_shows_at_each_step_what_fold_shows() -> None:
    chance = random.Random(8)
    for _ in range(200):
        messages = random_log(chance)
        folding = Fold()
        for count, message in enumerate(messages, 1):
            folding.feed(message)
            assert folding.transcript() == fold(messages[:count])
