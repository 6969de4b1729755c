"""Events of turn logs in the shapes of the wire, without any additive field unless it is asked for.

These are also the shapes of other agents and of another turn control than ours.
"""

from __future__ import annotations

from typing import Any

from vystak_turns_client.retained import LoggedMessage
from vystak_turns_rpc import events

CREATED = {"type": events.RESPONSE_CREATED, "response": {"id": "resp_1", "status": "in_progress"}}
COMPLETED = {
    "type": events.RESPONSE_COMPLETED,
    "response": {"id": "resp_1", "status": "completed", "output": []},
}
FAILED = {
    "type": events.RESPONSE_FAILED,
    "response": {"status": "failed", "error": {"message": "no more tokens"}},
}


def delta(text: str, item_id: str = "m1") -> dict[str, Any]:
    """A piece of text."""
    indexes = {"output_index": 0, "content_index": 0}
    return {"type": events.TEXT_DELTA, "item_id": item_id, **indexes, "delta": text}


def called(call_id: str, tool: str, arguments: str = "{}") -> list[dict[str, Any]]:
    """A tool call, as its three events."""
    item = {"type": "function_call", "id": call_id, "call_id": call_id, "name": tool}
    return [
        {"type": events.ITEM_ADDED, "item": {**item, "arguments": ""}},
        {"type": events.ARGUMENTS_DELTA, "call_id": call_id, "delta": arguments},
        {"type": events.ARGUMENTS_DONE, "call_id": call_id, "arguments": arguments},
    ]


def result(call_id: str, output: str, *, error: bool = False) -> dict[str, Any]:
    """What a tool answered."""
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    return {"type": events.ITEM_ADDED, "item": {**item, "error": True} if error else item}


def asks(tool: str, **args: Any) -> dict[str, Any]:
    """The question of a gated tool."""
    payload = {"kind": "tool_approval", "tool": tool, "args": args, "skill": "s"}
    return {"type": events.APPROVAL_REQUESTED, "payload": payload}


def rewind(to_seq: int) -> dict[str, Any]:
    """What takes back everything above `to_seq`."""
    return events.rewind(to_seq)


def log(*said: dict[str, Any], first: int = 11, step: int = 3) -> list[LoggedMessage]:
    """A log of these events; other turns have a part of the stream's numbers."""
    return [LoggedMessage(seq, event, first + step * seq) for seq, event in enumerate(said)]
