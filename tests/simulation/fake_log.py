"""The turn log in memory, with the habits of JetStream from 2.12 on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.crashes import Crashes
from vystak_turns.core.findings import Asked, Content, Rewound, Tail, Terminal
from vystak_turns.core.turn import Failure
from vystak_turns.ports import AppendConflictError, LogMessage

_LATENCY_S = 0.001


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of the log."""

    stream_seq: int
    message_id: str
    token: int
    seq: int
    event: dict[str, Any]


@dataclass(slots=True)
class FakeLog:
    """Durable: it outlives service and agent."""

    crashes: Crashes
    late_after_s: float
    subjects: dict[str, list[Stored]] = field(default_factory=dict)
    stream_seq: int = 0

    async def append(self, message: LogMessage) -> int:
        """Append under the expectation of the subject's last stream_seq."""
        if self.crashes.before("log.append"):
            asyncio.get_running_loop().call_later(self.late_after_s, self._land_late, message)
            self.crashes.check_alive()
        await asyncio.sleep(_LATENCY_S)
        stream_seq = self._store(message)
        self.crashes.after()
        await asyncio.sleep(_LATENCY_S)
        return stream_seq

    def _land_late(self, message: LogMessage) -> None:
        try:
            self._store(message)
        except AppendConflictError:
            return  # the next process was faster: its append stands

    def _store(self, message: LogMessage) -> int:
        messages = self.subjects.setdefault(message.subject, [])
        last = messages[-1].stream_seq if messages else 0
        if message.expected_stream_seq != last:
            raise AppendConflictError
        self.stream_seq += 1
        body = json.loads(message.body)
        messages.append(
            Stored(self.stream_seq, message.message_id, message.token, body["seq"], body["event"])
        )
        return self.stream_seq

    async def tail(self, subject: str) -> Tail | None:
        """Return the last message."""
        self.crashes.before("log.tail")
        await asyncio.sleep(_LATENCY_S)
        messages = self.subjects.get(subject)
        if not messages:
            return None
        last = messages[-1]
        return Tail(last.stream_seq, last.seq, last.token, last.message_id, _what(last.event))

    async def head_seq(self, subject: str) -> int | None:
        """Return the first message's seq."""
        self.crashes.before("log.head_seq")
        await asyncio.sleep(_LATENCY_S)
        messages = self.subjects.get(subject)
        return messages[0].seq if messages else None


def _what(event: dict[str, Any]) -> Terminal | Rewound | Asked | Content:
    match event["type"]:
        case "response.completed":
            return Terminal(None)
        case "response.failed":
            error = event["response"]["error"]
            return Terminal(Failure(error["code"], error["message"]))
        case "vystak.turn.rewind":
            return Rewound(event["to_seq"])
        case "vystak.approval.requested":
            return Asked(event["park_generation"], event["interrupt_id"])
        case _:
            return Content()
