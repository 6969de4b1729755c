"""The checkers find what they are there to find."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from tests.support import checkers
from tests.support.checkers import Logged

REWIND = "vystak.turn.rewind"


def delta(text: str, item_id: str = "m1") -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": item_id, "delta": text}


def call(call_id: str, label: str) -> list[dict[str, Any]]:
    item = {"type": "function_call", "call_id": call_id, "name": "slow_step"}
    arguments = json.dumps({"label": label})
    return [
        {"type": "response.output_item.added", "item": item},
        {
            "type": "response.function_call_arguments.delta",
            "call_id": call_id,
            "delta": arguments,
        },
    ]


def output(call_id: str) -> dict[str, Any]:
    item = {"type": "function_call_output", "call_id": call_id, "output": "ok"}
    return {"type": "response.output_item.added", "item": item}


def completed(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "response.completed", "response": {"output": [{"content": content}]}}


def log_of(*events: dict[str, Any]) -> list[Logged]:
    return [Logged(seq, event) for seq, event in enumerate(events)]


THREAD = [
    AIMessage(
        content="Hello",
        tool_calls=[{"name": "slow_step", "args": {"label": "one"}, "id": "c1"}],
    ),
    ToolMessage(content="ok", tool_call_id="c1"),
]
GOOD = [delta("Hel"), delta("lo"), *call("c1", "one"), output("c1"), completed("Hello")]


def test_a_log_that_shows_what_was_done_passes_every_check() -> None:
    log = log_of(*GOOD)

    checkers.check_one_end(log, "response.completed")
    checkers.check_sequence(log)
    checkers.check_shown_is_done(log, THREAD)
    checkers.check_whole_reply(log, THREAD)
    checkers.check_steps_once(["one"], ["one"])


def test_what_a_rewind_takes_back_does_not_count() -> None:
    log = log_of(delta("Hell no"), {"type": REWIND, "to_seq": -1}, *GOOD)

    checkers.check_shown_is_done(log, THREAD)


@pytest.mark.parametrize(
    "events",
    [
        GOOD[:-1],
        [*GOOD, delta("more")],
        [*GOOD, completed("Hello")],
        [*GOOD[:-1], {"type": "response.failed"}],
    ],
    ids=["no end", "something after it", "two ends", "another end"],
)
def test_a_wrong_end_is_found(events: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError, match="terminal events"):
        checkers.check_one_end(log_of(*events), "response.completed")


@pytest.mark.parametrize("seqs", [[1, 2], [0, 2], [0, 0], [1, 0]])
def test_a_wrong_sequence_is_found(seqs: list[int]) -> None:
    with pytest.raises(AssertionError, match="seqs are"):
        checkers.check_sequence([Logged(seq, delta("x")) for seq in seqs])


def test_a_rewind_to_what_is_not_there_yet_is_found() -> None:
    with pytest.raises(AssertionError):
        checkers.check_sequence([Logged(0, {"type": REWIND, "to_seq": 0})])


@pytest.mark.parametrize(
    "events",
    [
        GOOD[1:],
        [delta("Hel"), *GOOD],
        [*GOOD[:4], GOOD[-1]],
        [*GOOD[:5], output("c1"), GOOD[-1]],
        [*GOOD[:4], *call("c1", "one"), *GOOD[4:]],
        [delta("Hello", "m0"), *GOOD],
        [delta("Hel"), {"type": REWIND, "to_seq": 0}, *GOOD],
    ],
    ids=[
        "lost text",
        "doubled text",
        "lost result",
        "doubled result",
        "doubled call",
        "doubled message",
        "too little taken back",
    ],
)
def test_a_transcript_unlike_the_thread_is_found(events: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        checkers.check_shown_is_done(log_of(*events), THREAD)


@pytest.mark.parametrize("text", ["", "lo", "Hello "])
def test_a_reply_that_is_not_whole_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        checkers.check_whole_reply(log_of(*GOOD[:-1], completed(text)), THREAD)


@pytest.mark.parametrize(
    ("done", "maybe_twice"),
    [(["one"], ()), (["one", "two", "two"], ()), (["one", "two", "two", "two"], ("two",))],
    ids=["not done", "done twice", "done three times"],
)
def test_steps_that_were_not_done_once_are_found(
    done: list[str], maybe_twice: tuple[str, ...]
) -> None:
    with pytest.raises(AssertionError):
        checkers.check_steps_once(done, ["one", "two"], maybe_twice)


def test_a_message_with_more_than_seq_and_event_is_found() -> None:
    with pytest.raises(AssertionError, match="a message has"):
        checkers.logged([b'{"seq": 0, "event": {}, "token": 1}'])
