"""How the question of a parked turn is shown. Pure.

A gated tool asks with `{kind, tool, args, skill}`; a graph may ask with any other JSON.
"""

from __future__ import annotations

from typing import Any

from vystak_turns_rpc.vocabulary import Json


def tool_of(payload: Json) -> str | None:
    """Return the tool that a question is about, if it says so."""
    tool = payload.get("tool") if isinstance(payload, dict) else None
    return tool if isinstance(tool, str) else None


def approval_id(payload: Json) -> str:
    """Return the tool_call_id under which a question is shown."""
    return f"approval:{tool_of(payload) or ''}"


def approval_input(payload: Json) -> dict[str, Any]:
    """Return the object to show as the tool's input: its arguments, else the question itself."""
    if not isinstance(payload, dict):
        return {}
    if tool_of(payload) is None:
        return payload
    args = payload.get("args")
    return args if isinstance(args, dict) else {}
