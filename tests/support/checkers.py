"""The rules, checked by code that shares nothing with the service, the agent or the client.

Every checker raises AssertionError with what it found. `log` is all that a turn's subject holds,
in order; `thread` the messages that the agent's thread holds of the turn, as LangChain has them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TERMINAL = {"response.completed", "response.failed"}


@dataclass(frozen=True, slots=True)
class Logged:
    """One message of a turn's subject."""

    seq: int
    event: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str(self.event["type"])


@dataclass(slots=True)
class Call:
    """A tool call as a reader sees it: its arguments as JSON, every output that came."""

    call_id: str
    name: str
    arguments: str = ""
    outputs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Said:
    """One message of the agent."""

    item_id: str
    text: str = ""


@dataclass(slots=True)
class Page:
    """What a reader sees in the end: messages and tool calls in order of appearance."""

    items: list[Said | Call] = field(default_factory=list)
    approvals: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, Said))

    @property
    def calls(self) -> list[Call]:
        return [item for item in self.items if isinstance(item, Call)]


def logged(bodies: Iterable[bytes]) -> list[Logged]:
    """Read the bodies of a subject's messages; each is exactly `seq` and `event`."""
    log = []
    for body in bodies:
        message = json.loads(body)
        assert set(message) == {"seq", "event"}, f"a message has {sorted(message)}"
        log.append(Logged(message["seq"], message["event"]))
    return log


def check_one_end(log: Sequence[Logged], expected: str) -> None:
    """R1: one terminal event of the expected type, and nothing after it."""
    ends = [(place, message.type) for place, message in enumerate(log) if message.type in TERMINAL]
    assert ends == [(len(log) - 1, expected)], f"terminal events {ends} in {len(log)} messages"


def check_no_end(log: Sequence[Logged]) -> None:
    """R1, of a turn that is not over: no terminal event."""
    assert not [message for message in log if message.type in TERMINAL]


def check_sequence(log: Sequence[Logged]) -> None:
    """R2: seq is 0, 1, 2, … without a gap or a repetition; rewinds point backwards."""
    seqs = [message.seq for message in log]
    assert seqs == list(range(len(log))), f"seqs are {seqs}"
    for message in log:
        if message.type == "vystak.turn.rewind":
            assert -1 <= message.event["to_seq"] < message.seq, dict(message.event)


def check_shown_is_done(log: Sequence[Logged], thread: Sequence[Any]) -> None:
    """R3: readers see the thread's messages: each text, tool call and result once, in order."""
    shown = [_plain(item) for item in page_of(log).items]
    done = [_plain(item) for item in _expected(thread)]
    assert shown == done, f"readers see {shown}, done was {done}"


def check_whole_reply(log: Sequence[Logged], thread: Sequence[Any]) -> None:
    """R3: the terminal event carries the whole turn's text, and it is not empty."""
    parts = log[-1].event["response"]["output"][0]["content"]
    text = "".join(part["text"] for part in parts)
    spoken = "".join(item.text for item in _expected(thread) if isinstance(item, Said))
    assert text, "the reply is empty"
    assert text == spoken == page_of(log).text


def check_steps_once(
    completed: Sequence[str], labels: Collection[str], maybe_twice: Collection[str] = ()
) -> None:
    """R4: each step took effect once; only a step in flight as the agent died may have twice."""
    counts = Counter(completed)
    assert set(counts) == set(labels), f"steps {sorted(counts)}, expected {sorted(labels)}"
    again = {label for label, count in counts.items() if count > 1}
    assert again <= set(maybe_twice), f"run again: {sorted(again)}"
    assert max(counts.values()) <= 2, counts


def page_of(log: Iterable[Logged]) -> Page:
    """Return what a reader sees: rewinds taken into account, then put together by ids."""
    kept: list[Logged] = []
    for message in log:
        if message.type == "vystak.turn.rewind":
            kept = [each for each in kept if each.seq <= message.event["to_seq"]]
        else:
            kept.append(message)
    page = Page()
    for message in kept:
        _show(page, message.event)
    return page


def _show(page: Page, event: Mapping[str, Any]) -> None:
    match event["type"]:
        case "response.output_text.delta":
            _said(page, event["item_id"]).text += event["delta"]
        case "response.output_text.done":
            said = _said(page, event["item_id"])
            assert said.text == event["text"], f"{said.text!r} is not all of {event['text']!r}"
        case "response.output_item.added":
            _show_item(page, event["item"])
        case "response.function_call_arguments.delta":
            _call(page, event["call_id"]).arguments += event["delta"]
        case "response.function_call_arguments.done":
            call = _call(page, event["call_id"])
            assert call.arguments == event["arguments"], f"arguments {call.arguments!r}"
        case "vystak.approval.requested":
            page.approvals.append(event)


def _show_item(page: Page, item: Mapping[str, Any]) -> None:
    call_id = item["call_id"]
    if item["type"] == "function_call_output":
        _call(page, call_id).outputs.append(item["output"])
    else:
        known = [call for call in page.calls if call.call_id == call_id]
        assert not known, f"tool call {call_id} is shown twice"
        page.items.append(Call(call_id, item["name"]))


def _said(page: Page, item_id: str) -> Said:
    for item in page.items:
        if isinstance(item, Said) and item.item_id == item_id:
            return item
    page.items.append(Said(item_id))
    return _said(page, item_id)


def _call(page: Page, call_id: str) -> Call:
    return next(call for call in page.calls if call.call_id == call_id)


def _expected(thread: Sequence[Any]) -> list[Said | Call]:
    items: list[Said | Call] = []
    for message in thread:
        if message.type == "ai":
            if message.text:
                items.append(Said("", str(message.text)))
            items += [
                Call(call["id"], call["name"], json.dumps(call["args"]))
                for call in message.tool_calls
            ]
        elif message.type == "tool":
            call_id = message.tool_call_id
            call = next(i for i in items if isinstance(i, Call) and i.call_id == call_id)
            call.outputs.append(message.content)
    return items


def _plain(item: Said | Call) -> object:
    if isinstance(item, Said):
        return item.text
    return item.call_id, item.name, json.loads(item.arguments), item.outputs
