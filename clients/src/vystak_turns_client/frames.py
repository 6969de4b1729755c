"""From the messages of a turn log to the frames that a browser gets. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event.

    `data` has `type`, `turn_id`, `seq` and the type's own fields:

    - `delta`: text, item_id
    - `tool_call`: tool_call_id, tool_name, arguments (a JSON text)
    - `tool_result`: tool_call_id, output, is_error
    - `approval`: tool_call_id (`approval:<tool>`), tool_name, input, and payload (the question as
      it is), park_generation, interrupt_id (both None from the original's turn control)
    - `reset`: drop everything shown of the turn; what is retained follows, with its original seqs
    - `done`: response_id, title
    - `error`: message, code

    `id` is what the browser sends back as Last-Event-ID.
    """

    type: str
    data: dict[str, Any]
    id: str


KEEP_ALIVE = Frame("", {}, "")
"""No event: a comment line that keeps the connection open."""


def encode(frame: Frame) -> bytes:
    """Return the frame as bytes of `text/event-stream`; no `event:` line, the type is in data."""
    if frame == KEEP_ALIVE:
        return b": keep-alive\n\n"
    data = json.dumps(frame.data, ensure_ascii=True, separators=(",", ":"))
    return f"id: {frame.id}\ndata: {data}\n\n".encode()
