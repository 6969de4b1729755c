from __future__ import annotations

import json
from typing import Any

import pytest

from vystak_turns_rpc import events
from vystak_turns_rpc.events import TurnMessage, UnknownEvent, parse_event
from vystak_turns_rpc.vocabulary import FailureCode

KNOWN: list[tuple[type, dict[str, Any]]] = [
    (events.ResponseCreated, {"type": "response.created", "response": {"id": "r", "x": None}}),
    (
        events.TextDelta,
        {"type": "response.output_text.delta", "item_id": "m", "delta": "é", "output_index": 0},
    ),
    (
        # Half of a sign, as an agent that cuts escapes between tokens would send it.
        events.TextDelta,
        {"type": "response.output_text.delta", "item_id": "m", "delta": "\ud83d"},
    ),
    (events.TextDone, {"type": "response.output_text.done", "item_id": "m", "text": ""}),
    (
        events.ItemAdded,
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call", "call_id": "c", "name": "n", "arguments": ""},
        },
    ),
    (
        events.ItemAdded,
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call_output", "call_id": "c", "output": "o", "error": True},
        },
    ),
    (
        events.ArgumentsDelta,
        {"type": "response.function_call_arguments.delta", "call_id": "c", "delta": "{}"},
    ),
    (
        events.ArgumentsDone,
        {"type": "response.function_call_arguments.done", "call_id": "c", "arguments": "{}"},
    ),
    (events.ResponseCompleted, {"type": "response.completed", "response": {"output": [1]}}),
    (events.ResponseFailed, {"type": "response.failed", "response": {"error": {}}}),
    (events.TurnRewind, events.rewind(-1)),
    (events.ApprovalRequested, events.approval_requested({"tool": "t"}, 1, "i")),
    (events.ApprovalRequested, {"type": "vystak.approval.requested", "payload": None}),
    (events.Checkpoint, {"type": "vystak.checkpoint", "checkpoint_id": "k"}),
    (events.Rollback, {"type": "vystak.rollback"}),
    (events.Drained, {"type": "vystak.drained"}),
]

NOT_UNDERSTOOD: list[dict[str, Any]] = [
    {},
    {"type": 5, "model_config": 1, "self": 2},
    {"type": None},
    {"type": "response.reasoning.delta", "delta": {"deep": [1.5, None]}},
    {"type": "response.output_text.delta", "item_id": "m", "delta": None},
    {"type": "vystak.turn.rewind", "to_seq": "3"},
    {"type": "vystak.turn.rewind", "to_seq": True},
    {"type": "response.completed", "response": "text"},
]


@pytest.mark.parametrize(("model", "event"), KNOWN)
def test_a_known_event_gets_its_type_and_comes_back_the_same(
    model: type, event: dict[str, Any]
) -> None:
    for extended in (event, {**event, "new_field": {"a": [None, 1.5, True]}}):
        parsed = parse_event(extended)
        assert type(parsed) is model
        assert json.dumps(parsed.to_dict(), sort_keys=True) == json.dumps(extended, sort_keys=True)


@pytest.mark.parametrize("event", NOT_UNDERSTOOD)
def test_what_is_not_understood_stays_as_it_is(event: dict[str, Any]) -> None:
    parsed = parse_event(event)
    assert isinstance(parsed, UnknownEvent)
    assert parsed.to_dict() == event
    assert parsed.type == (event["type"] if isinstance(event.get("type"), str) else "")


def test_an_item_of_an_unknown_kind_stays_a_plain_object() -> None:
    item = {"type": "image", "url": "u"}
    parsed = parse_event({"type": "response.output_item.added", "item": item})
    assert isinstance(parsed, events.ItemAdded)
    assert parsed.item == item


def test_exactly_two_types_end_a_turn() -> None:
    ends = {event["type"] for _, event in KNOWN if events.is_terminal(event["type"])}
    assert ends == {"response.completed", "response.failed"}
    assert not events.is_terminal("response.incomplete")


def test_in_band_types_are_those_that_are_never_published() -> None:
    assert {"vystak.checkpoint", "vystak.rollback", "vystak.drained"} == events.IN_BAND


def test_a_failure_says_why_and_names_the_response_only_if_there_is_one() -> None:
    assert events.failed("gone", FailureCode.CANCELLED) == {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"message": "gone", "code": "cancelled"}},
    }
    assert events.failed("gone", "cancelled", "resp_1")["response"]["id"] == "resp_1"


def test_a_turn_message_keeps_the_event_byte_for_byte() -> None:
    event = b'{ "type":"x",  "n": 1.50, "dup":1, "dup":2 }'
    payload = events.encode_turn_message(7, event)
    assert payload == b'{"seq":7,"event":' + event + b"}"
    assert events.parse_turn_message(payload) == TurnMessage(7, json.loads(event))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"seq":-1,"event":{}}',
        b'{"seq":true,"event":{}}',
        b'{"seq":"1","event":{}}',
        b'{"seq":1}',
        b'{"seq":1,"event":[]}',
        b'{"seq":1,"event":' + b"[" * 100_000,
    ],
)
def test_a_foreign_message_is_a_value_error(payload: bytes) -> None:
    with pytest.raises(ValueError):
        events.parse_turn_message(payload)
