"""The turn log in memory, with the habits of JetStream from 2.12 on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.blows import Blows, Kind
from vystak_turns.core.findings import Asked, Content, Rewound, Tail, Terminal
from vystak_turns.core.turn import Failure
from vystak_turns.ports import AppendConflictError, LogMessage, LogUnavailableError

_LATENCY_S = 0.001
_ACK_S = 0.5


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of the log, kept here for the checkers also when the log has lost it.

    `number` is its stream_seq; `first` the index of the subject's first retained message when it
    was stored; `after_loss` tells that the subject was empty although it had held messages.
    """

    number: int
    message_id: str
    token: int
    seq: int
    event: dict[str, Any]
    at_s: float
    first: int
    after_loss: bool


@dataclass(slots=True)
class Subject:
    """All that a turn's subject ever held; `lost` counts the messages that it has lost."""

    stored: list[Stored] = field(default_factory=list)
    lost: int = 0

    def retained(self) -> list[Stored]:
        """What a reader gets."""
        return self.stored[self.lost :]


@dataclass(slots=True)
class FakeLog:
    """Durable: it outlives service and agents."""

    blows: Blows
    restart_s: float
    max_age_s: float
    subjects: dict[str, Subject] = field(default_factory=dict)
    fault: Kind | None = None
    away_until_s: float = 0.0
    _last: int = 0
    _generation: int = 0

    async def append(self, message: LogMessage) -> int:
        """Append under the expectation of the subject's last stream_seq."""
        late_ms = await self.blows.before("log.append")
        if late_ms:
            self._land_after(self.restart_s + late_ms / 1000, message)
            self.blows.check_alive()
        await self._reach()
        fault, self.fault = self.fault, None
        if fault is not None:
            await self._fail(fault, message)
        stream_seq = self._store(message)
        await self.blows.after()
        await asyncio.sleep(_LATENCY_S)
        return stream_seq

    async def _fail(self, fault: Kind, message: LogMessage) -> None:
        if fault is Kind.LANDED:
            self._store(message)
        elif fault is Kind.LANDED_LATE:
            self._land_after(_ACK_S + 0.007, message)
        await asyncio.sleep(_ACK_S)
        await self.blows.after()
        raise LogUnavailableError("no acknowledgement")

    def _land_after(self, delay_s: float, message: LogMessage) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._land_late, message, self._generation)

    def _land_late(self, message: LogMessage, generation: int) -> None:
        if generation != self._generation:
            return  # sent to a stream that is no more
        try:
            self._store(message)
        except AppendConflictError:
            return  # somebody was faster: that append stands

    def _store(self, message: LogMessage) -> int:
        subject = self._aged(message.subject)
        retained = subject.retained()
        last = retained[-1].number if retained else 0
        if message.expected_stream_seq != last:
            raise AppendConflictError
        self._last += 1
        body = json.loads(message.body)
        subject.stored.append(
            Stored(
                number=self._last,
                message_id=message.message_id,
                token=message.token,
                seq=body["seq"],
                event=body["event"],
                at_s=_now_s(),
                first=subject.lost,
                after_loss=not retained and bool(subject.stored),
            )
        )
        return self._last

    async def tail(self, subject: str) -> Tail | None:
        """Return the last message."""
        await self.blows.before("log.tail")
        await self._reach()
        retained = self._aged(subject).retained()
        if not retained:
            return None
        last = retained[-1]
        return Tail(last.number, last.seq, last.token, last.message_id, _what(last.event))

    async def head_seq(self, subject: str) -> int | None:
        """Return the first message's seq."""
        await self.blows.before("log.head_seq")
        await self._reach()
        retained = self._aged(subject).retained()
        return retained[0].seq if retained else None

    async def _reach(self) -> None:
        if _now_s() < self.away_until_s:
            await asyncio.sleep(_ACK_S)
            raise LogUnavailableError("the broker does not answer")
        await asyncio.sleep(_LATENCY_S)

    def purge(self) -> None:
        """Empty every subject."""
        for subject in self.subjects.values():
            subject.lost = len(subject.stored)

    def delete(self) -> None:
        """Delete the stream and make it anew: its numbers begin again."""
        self.purge()
        self._last = 0
        self._generation += 1

    def _aged(self, name: str) -> Subject:
        subject = self.subjects.setdefault(name, Subject())
        oldest_s = _now_s() - self.max_age_s
        while subject.lost < len(subject.stored):
            if subject.stored[subject.lost].at_s >= oldest_s:
                break
            subject.lost += 1
        return subject


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _what(event: dict[str, Any]) -> Terminal | Rewound | Asked | Content:
    match event["type"]:
        case "response.completed":
            return Terminal(None)
        case "response.failed":
            error = event["response"]["error"]
            return Terminal(Failure(error.get("code", "graph_error"), error["message"]))
        case "vystak.turn.rewind":
            return Rewound(event["to_seq"])
        case "vystak.approval.requested":
            return Asked(event["park_generation"], event["interrupt_id"])
        case _:
            return Content()
