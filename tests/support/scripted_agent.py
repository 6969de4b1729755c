"""An agent of the original's kind over real HTTP: a test writes each of its answers.

It knows nothing of stamps, epochs and draining unless the test's `view` says so.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.integration.agent_http.raw import (
    CHUNKED,
    LAST_CHUNK,
    Answer,
    Connection,
    RawAgent,
    Request,
    raw_agent,
    reply,
)

Event: TypeAlias = dict[str, Any]

THREAD = "resp_" + "a" * 24
CREATED: Event = {"type": "response.created", "response": {"id": THREAD, "status": "in_progress"}}
COMPLETED: Event = {
    "type": "response.completed",
    "response": {
        "id": THREAD,
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "all"}]}],
    },
}
FAILED: Event = {
    "type": "response.failed",
    "response": {"id": THREAD, "status": "failed", "error": {"message": "no such file"}},
}
UNSEEN: Event = {"checkpoint_id": None, "interrupted": False, "interrupts": []}


def word(text: str) -> Event:
    """A piece of text."""
    return {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text}


def marker(checkpoint_id: str) -> Event:
    """A checkpoint's marker."""
    return {"type": "vystak.checkpoint", "checkpoint_id": checkpoint_id}


def stands_at(checkpoint_id: str, **more: Any) -> Event:
    """The view of a thread that is in the middle of something, as the original tells it."""
    return {"checkpoint_id": checkpoint_id, "interrupted": True, "interrupts": [], **more}


@dataclass(slots=True)
class ScriptedAgent:
    """Answers health and checkpoint at once, and each dispatch or resume by the next of `calls`.

    The last one of `calls` answers all further ones too. `runs` holds the dispatches and resumes
    that came, `open_runs` how many are being answered.
    """

    calls: list[Answer] = field(default_factory=list)
    view: Event | Answer = field(default_factory=lambda: dict(UNSEEN))
    health: int = 200
    raw: RawAgent = field(init=False)
    runs: list[Request] = field(default_factory=list)
    open_runs: int = 0
    most_runs: int = 0

    def __post_init__(self) -> None:
        self.raw = RawAgent(self.answer)

    async def answer(self, connection: Connection) -> None:
        """Answer the request that came last."""
        request = self.raw.requests[-1]
        path = request.target.partition("?")[0]
        if path == "/healthz":
            await reply(self.health)(connection)
        elif path == "/v1/_vystak/checkpoint":
            view = self.view
            await (view if callable(view) else reply(200, _json(view)))(connection)
        elif path in {"/v1/responses", "/v1/_vystak/resume"}:
            await self._run(request, connection)
        else:
            await reply(404)(connection)

    async def _run(self, request: Request, connection: Connection) -> None:
        self.runs.append(request)
        call = self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]
        self.open_runs += 1
        self.most_runs = max(self.most_runs, self.open_runs)
        try:
            await call(connection)
        finally:
            self.open_runs -= 1

    def asked(self, path: str) -> int:
        """Count the requests for a path."""
        return sum(request.target.partition("?")[0] == path for request in self.raw.requests)

    def tells(self, *events: Event, leaves: Event | None = None) -> Answer:
        """Stream these events and end; the thread then stands where `leaves` says."""
        return self._telling(events, leaves, LAST_CHUNK)

    def breaks_off(self, *events: Event, leaves: Event | None = None) -> Answer:
        """Stream these events and lose the connection, as when the agent was killed."""
        return self._telling(events, leaves, b"")

    def _telling(self, events: tuple[Event, ...], leaves: Event | None, end: bytes) -> Answer:
        async def answer(connection: Connection) -> None:
            await connection.send(CHUNKED)
            for event in events:
                await connection.chunks(frame(event))
            if leaves is not None:
                self.view = leaves
            await connection.send(end)

        return answer


def frame(event: Event) -> bytes:
    """One event as a chunk of the stream."""
    return b"data: %b\n\n" % _json(event)


@asynccontextmanager
async def scripted_agent(*calls: Answer) -> AsyncIterator[ScriptedAgent]:
    """An agent that listens; `calls` may be set later, too."""
    agent = ScriptedAgent(list(calls))
    async with raw_agent(agent.answer) as raw:
        agent.raw = raw
        yield agent


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
