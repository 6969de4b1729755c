"""From what a user sees of a turn to the one row that stays of it. Pure."""

from __future__ import annotations

import json

from vystak_turns_client.fold import Approval, End, Item, Outcome, Text, ToolCall, Transcript
from vystak_turns_client.questions import approval_id, approval_input, tool_of
from vystak_turns_client.storage import ActiveTurn, MessageRow, Part, RowState

OUTPUT_AVAILABLE = "output-available"
APPROVAL_REQUESTED = "approval-requested"


def waiting_row(turn: ActiveTurn, seen: Transcript, approval: Approval | None) -> MessageRow:
    """Build the row of a turn that has not ended; `approval` is the question that it waits on."""
    state = RowState.RUNNING if approval is None else RowState.PARKED
    return MessageRow(turn, seen.text, parts(seen, approval), state)


def final_row(
    turn: ActiveTurn, seen: Transcript, end: End, stored: MessageRow | None
) -> MessageRow | None:
    """Build the row of a turn whose log has ended; None if it failed without any output."""
    if end.outcome is Outcome.COMPLETED:
        return MessageRow(turn, seen.text, parts(seen, None), RowState.DONE)
    return _errored(turn, seen, stored, RowState.FAILED, end.message or "the turn failed")


def given_up_row(
    turn: ActiveTurn, seen: Transcript, stored: MessageRow | None, reason: str
) -> MessageRow | None:
    """Build the row of a turn that was given up; None if there was no output."""
    return _errored(turn, seen, stored, RowState.ERROR, reason)


def _errored(
    turn: ActiveTurn, seen: Transcript, stored: MessageRow | None, state: RowState, reason: str
) -> MessageRow | None:
    kept = parts(seen, None)
    if kept:
        return MessageRow(turn, seen.text, kept, state, reason)
    if stored is None:
        return None
    # The log has nothing any more: what the row has stays, but for the question.
    kept = tuple(part for part in stored.parts if part.get("state") != APPROVAL_REQUESTED)
    return MessageRow(turn, stored.content, kept, state, reason)


def parts(seen: Transcript, approval: Approval | None) -> tuple[Part, ...]:
    """Return texts, tool calls that were answered, and the question that is open."""
    found = [part for item in seen.items if (part := _part(item)) is not None]
    if approval is not None:
        found.append(pending_part(approval))
    return tuple(found)


def pending_part(approval: Approval) -> Part:
    """Return the part that shows the question of a parked turn."""
    return {
        "type": "tool",
        "state": APPROVAL_REQUESTED,
        "tool_call_id": approval_id(approval.payload),
        "tool_name": tool_of(approval.payload) or "",
        "input": json.dumps(approval_input(approval.payload), ensure_ascii=False),
        "output": "",
        "is_error": False,
    }


def _part(item: Item) -> Part | None:
    match item:
        case Text(text=text):
            return {"type": "text", "text": text} if text else None
        case ToolCall(output=None):
            return None
        case ToolCall():
            return {
                "type": "tool",
                "state": OUTPUT_AVAILABLE,
                "tool_call_id": item.call_id,
                "tool_name": item.name,
                "input": item.arguments,
                "output": item.output,
                "is_error": item.is_error,
            }
