"""Stored messages of a turn's subject, and what the last one says about the turn."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vystak_turns.core.findings import Asked, Content, Rewound, Tail, Terminal
from vystak_turns.core.turn import Failure
from vystak_turns_rpc.events import (
    APPROVAL_REQUESTED,
    HEADER_MSG_ID,
    HEADER_TOKEN,
    RESPONSE_COMPLETED,
    RESPONSE_FAILED,
    TURN_REWIND,
    TurnMessage,
    parse_turn_message,
)
from vystak_turns_rpc.vocabulary import FailureCode


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as the stream holds it."""

    stream_seq: int
    headers: Mapping[str, str]
    body: bytes


def read_stored(message: Mapping[str, Any]) -> StoredMessage:
    """Read the `message` of a `STREAM.MSG.GET` answer; raises ValueError, KeyError, TypeError."""
    return StoredMessage(
        stream_seq=int(message["seq"]),
        headers=_headers(base64.b64decode(message.get("hdrs") or "")),
        body=base64.b64decode(message.get("data") or ""),
    )


def is_ours(message: StoredMessage) -> int | None:
    """Return the turn's own number of the message; `None` when the body is not one of ours."""
    parsed = _parse(message.body)
    return None if parsed is None else parsed.seq


def tail_of(message: StoredMessage) -> Tail:
    """Say what the subject's last message means."""
    parsed = _parse(message.body)
    token = message.headers.get(HEADER_TOKEN, "")
    return Tail(
        stream_seq=message.stream_seq,
        seq=None if parsed is None else parsed.seq,
        token=int(token) if token.isascii() and token.isdigit() else None,
        message_id=message.headers.get(HEADER_MSG_ID),
        what=Content() if parsed is None else _meaning(parsed.event),
    )


def _parse(body: bytes) -> TurnMessage | None:
    try:
        return parse_turn_message(body)
    except ValueError:
        return None


def _meaning(event: Mapping[str, Any]) -> Terminal | Rewound | Asked | Content:
    event_type = event.get("type")
    if event_type == RESPONSE_COMPLETED:
        return Terminal(None)
    if event_type == RESPONSE_FAILED:
        return Terminal(_failure(event))
    if event_type == TURN_REWIND and isinstance(event.get("to_seq"), int):
        return Rewound(event["to_seq"])
    if event_type == APPROVAL_REQUESTED:
        return _asked(event)
    return Content()


def _failure(event: Mapping[str, Any]) -> Failure:
    """Read a failure; one without a code is the agent's own."""
    response = event.get("response")
    error = response.get("error") if isinstance(response, dict) else None
    fields = error if isinstance(error, dict) else {}
    code, message = fields.get("code"), fields.get("message")
    return Failure(
        code if isinstance(code, str) and code else FailureCode.GRAPH_ERROR,
        message if isinstance(message, str) and message else "The agent gave no reason.",
    )


def _asked(event: Mapping[str, Any]) -> Asked:
    generation, interrupt_id = event.get("park_generation"), event.get("interrupt_id")
    return Asked(
        generation if isinstance(generation, int) else None,
        interrupt_id if isinstance(interrupt_id, str) else None,
    )


def _headers(block: bytes) -> dict[str, str]:
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
