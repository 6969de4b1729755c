"""Appends a turn's events to its log, in order, fenced by sequence and token (R2, R7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, assert_never

import structlog

from vystak_turns.app.ledger import Ledger
from vystak_turns.app.pauses import Pauses
from vystak_turns.core.effects import StandDown
from vystak_turns.core.facts import SeqsReserved
from vystak_turns.core.findings import Rewound, Tail
from vystak_turns.core.settle import (
    Attempted,
    Landed,
    Moved,
    Overtaken,
    Rebase,
    Retry,
    settle,
)
from vystak_turns.core.turn import Turn
from vystak_turns.ports import AppendConflictError, LogMessage, LogUnavailableError, TurnLog
from vystak_turns_rpc.events import encode_turn_message

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class LogMovedError(Exception):
    """The log is not what the driver planned for: probe again."""


class OvertakenError(Exception):
    """Another driver has the turn: stop quietly."""


class LogWriter:
    """The writing end of one turn's subject, from the tail that a probe has read.

    `waiting` tells whether the broker keeps an append waiting.
    """

    def __init__(
        self,
        log: TurnLog,
        ledger: Ledger,
        pauses: Pauses,
        block: int,
        turn: Turn,
        tail: Tail | None,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._pauses = pauses
        self._block = block
        self._turn_id = turn.turn_id
        self._subject = turn.stream_subject
        self._token = turn.token
        self._limit = turn.seq_limit
        self._expected = 0 if tail is None else tail.stream_seq
        self._next_seq = self._seq_after(tail, turn)
        self._first = True
        self._lock = asyncio.Lock()
        self.at_start = self._is_start(tail, turn)
        self.waiting = False

    @property
    def last_seq(self) -> int:
        """The seq of the newest message; -1 for none."""
        return self._next_seq - 1

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """Keep appends out; the one in flight has settled."""
        async with self._lock:
            yield

    def take(self, turn: Turn) -> None:
        """Write in the name of the turn's present driver from now on."""
        self._token = turn.token
        self._limit = turn.seq_limit
        self._first = True

    async def append(
        self, event_json: bytes, *, rewinds_to: int | None = None, needs_all: bool = False
    ) -> int:
        """Append one event and return its seq once the log has it.

        An event that `needs_all` before it is not appended to a log that has been emptied.

        Waits for the broker as long as it takes: a slow or absent log never ends a run.

        Raises:
            LogMovedError, OvertakenError: see there.
            AppendTooLargeError: the broker does not take a message of this size.

        """
        async with self._lock:
            return await self._append(event_json, rewinds_to, needs_all=needs_all)

    async def _append(self, event_json: bytes, rewinds_to: int | None, *, needs_all: bool) -> int:
        while True:
            seq = await self._reserve()
            message = self._message(seq, event_json)
            try:
                self._expected = await self._log.append(message)
            except (AppendConflictError, LogUnavailableError):
                self.waiting = True
                attempted = self._attempted(message, rewinds_to is not None, needs_all)
                if not await self._landed(attempted):
                    continue
            self.waiting = False
            self._pauses.reset()
            self._next_seq = seq + 1
            self._first = False
            self.at_start = rewinds_to == -1
            return seq

    async def _reserve(self) -> int:
        seq = self._next_seq
        if seq >= self._limit:
            await self._reserve_up_to(seq + self._block)
        return seq

    def _message(self, seq: int, event_json: bytes) -> LogMessage:
        return LogMessage(
            subject=self._subject,
            body=encode_turn_message(seq, event_json),
            message_id=f"{self._turn_id}:{seq}:{self._token}",
            token=self._token,
            expected_stream_seq=self._expected,
        )

    def _attempted(self, message: LogMessage, forced: bool, needs_all: bool) -> Attempted:
        return Attempted(
            message_id=message.message_id,
            token=self._token,
            expected=message.expected_stream_seq,
            forced=forced,
            first=self._first,
            needs_all=needs_all,
        )

    async def _landed(self, attempted: Attempted) -> bool:
        """Find out what became of an append; prepare the next try if it did not land."""
        verdict = settle(await self.read_tail(), attempted)
        match verdict:
            case Landed(stream_seq):
                self._expected = stream_seq
                return True
            case Retry(expected):
                if expected != attempted.expected:
                    await self._check_still_named()
                self._expected = expected
                await self._pauses.take()
            case Rebase(expected, last_seq):
                self._expected = expected
                self._next_seq = self._limit if last_seq is None else last_seq + 1
                _log.warning("stepping over a foreign message", turn_id=self._turn_id)
            case Moved():
                raise LogMovedError
            case Overtaken():
                raise OvertakenError
            case _:
                assert_never(verdict)
        return False

    async def _check_still_named(self) -> None:
        """An emptied log refuses nobody who expects nothing: only the journal can say no (R7)."""
        await self._reserve_up_to(self._limit + 1)

    async def _reserve_up_to(self, limit: int) -> None:
        fact = SeqsReserved(self._token, limit)
        turn, effects = await self._ledger.apply_patiently(self._turn_id, fact, self._pauses)
        if StandDown() in effects:
            raise OvertakenError
        self._limit = turn.seq_limit

    async def read_tail(self) -> Tail | None:
        """Read the subject's last message, waiting for the broker as long as it takes."""
        return await self._patiently(self._log.tail)

    async def read_head(self) -> int | None:
        """Read the seq of the first retained message, waiting likewise."""
        return await self._patiently(self._log.head_seq)

    async def _patiently(self, read: Callable[[str], Awaitable[_T]]) -> _T:
        told = False
        while True:
            try:
                return await read(self._subject)
            except LogUnavailableError as error:
                if not told:
                    _log.warning("log unavailable", turn_id=self._turn_id, error=str(error))
                    told = True
                await self._pauses.take()

    @staticmethod
    def _seq_after(tail: Tail | None, turn: Turn) -> int:
        """The log's last + 1; the reserved limit if the log, or the end of it, was lost.

        A turn of which no append was ever known to land starts at 0.
        """
        if tail is None:
            return 0 if turn.last_seq < 0 else turn.seq_limit
        lost = tail.seq is None or tail.seq < turn.last_seq
        return turn.seq_limit if lost else (tail.seq or 0) + 1

    @staticmethod
    def _is_start(tail: Tail | None, turn: Turn) -> bool:
        if tail is None:
            return turn.last_seq < 0
        return isinstance(tail.what, Rewound) and tail.what.to_seq == -1
