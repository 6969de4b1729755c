"""The panel's loop: from a turn's log to the one row that it leaves in the conversation.

Silence is not the end. After every idle gap turn control is asked; only a status that says so ends
a turn before the deadline, and before anything is concluded the log is read to its end, because a
turn may complete in that very moment. The row is a function of the log and is saved under the
turn's id, so a persister may be killed at any point: the next one saves the same row.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from vystak_turns_client.errors import Idle, ServiceUnavailable, StreamNotFound
from vystak_turns_client.fold import Approval, Fold, Outcome
from vystak_turns_client.idle import Verdict, patience_s, verdict
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_client.rows import final_row, given_up_row, waiting_row
from vystak_turns_client.storage import ActiveTurn, Storage
from vystak_turns_rpc.envelope import ProtocolError
from vystak_turns_rpc.errors import RpcError
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import WireStatus

AskStatus = Callable[[str], Awaitable[TurnStatusResult]]
"""`TurnsClient.turn_status`: raises ServiceUnavailable when nobody answers within 5 s."""
MonotonicClock = Callable[[], float]
"""`time.monotonic`: seconds that never go back."""

# An error reply tells nothing about the turn either: turn control may be stopping, or its journal
# busy. A turn that it does not know is a status, not an error.
_NO_ANSWER: Final = (ServiceUnavailable, RpcError, ProtocolError, TimeoutError)


class Log(Protocol):
    """A turn's log, as `persister_log.NatsLog` reads it from JetStream."""

    def follow(
        self, subject: str, after_stream_seq: int, idle_s: float
    ) -> AsyncGenerator[LoggedMessage, None]:
        """Yield the messages behind a place, to the terminal event; raises Idle after silence."""

    async def rest(self, subject: str, after_stream_seq: int) -> list[LoggedMessage]:
        """Return the messages behind a place that are there now.

        Raises Idle when the broker cannot tell at present.
        """


@dataclass(frozen=True, slots=True)
class Limits:
    """`idle_s`: silence before turn control is asked.

    `deadline_s`: how long after the persister's start a silent turn is still waited for, whatever
    its status; a turn that goes on speaking is followed (R9).
    """

    idle_s: float = 120.0
    deadline_s: float = 900.0


class Conclusion(StrEnum):
    """How a persister left its turn."""

    DONE = "done"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    """Errored without an end in the log: turn control says it is over, or the deadline passed."""
    AT_REST = "at_rest"
    """Parked at the deadline: the decision starts a new persister."""


class Finding(StrEnum):
    """What a second look at an unsettled turn found."""

    ENDED = "ended"
    """Its log has ended, its row is right now."""
    GOES_ON = "goes_on"
    """It has not ended, and waits on no question: at rest no more."""
    NOTHING_NEW = "nothing_new"


@dataclass(frozen=True, slots=True)
class Persister:
    """Looks after turns, one `run` each; the silence that `log` measures is time of `clock` too."""

    storage: Storage
    log: Log
    status: AskStatus
    clock: MonotonicClock
    limits: Limits = field(default_factory=Limits)

    async def run(self, turn: ActiveTurn) -> Conclusion:
        """Follow the turn to its end and store its row; may be killed and run again at any point.

        Raises what storage and log raise, and CancelledError: the turn is then still active.
        """
        return await _Attendance(self, turn).run()

    async def look_again(self, turn: ActiveTurn) -> Finding:
        """Correct the row of a turn that was given up or rests, if its log has ended since.

        Call it for `Storage.unsettled_turns` whenever a conversation is shown.
        """
        return await _Attendance(self, turn).look_again()


class _Attendance:
    """One persister's life with one turn."""

    def __init__(self, ports: Persister, turn: ActiveTurn) -> None:
        self._ports = ports
        self._storage = ports.storage
        self._turn = turn
        self._started_s = ports.clock()
        self._fold = Fold()
        self._place = 0
        # The question in the row; None also for a row that does not exist yet.
        self._noted: Approval | None = None

    async def run(self) -> Conclusion:
        is_silent = False
        while True:
            place = self._place
            await self._follow(is_silent)
            if self._fold.ended:
                return await self._end()
            conclusion = await self._after_silence()
            if conclusion is not None:
                return conclusion
            is_silent = self._place == place

    async def look_again(self) -> Finding:
        messages = await self._rest()
        for message in messages or ():
            self._feed(message)
        if self._fold.ended:
            await self._end()
            return Finding.ENDED
        return Finding.GOES_ON if messages and not self._fold.approval else Finding.NOTHING_NEW

    async def _follow(self, is_silent: bool) -> None:
        """Read until the end or a silence."""
        limits = self._ports.limits
        wait_s = patience_s(limits.idle_s, limits.deadline_s, self._waited_s(), is_silent)
        try:
            following = self._ports.log.follow(self._turn.subject, self._place, wait_s)
            async with aclosing(following) as messages:
                async for message in messages:
                    self._feed(message)
                    await self._note(self._fold.approval)
        except Idle:
            return

    async def _after_silence(self) -> Conclusion | None:
        answer = await self._ask()
        word = None if answer is None else answer.status
        decision = verdict(word, self._waited_s(), self._ports.limits.deadline_s)
        place = self._place
        if decision is not Verdict.WAIT:
            is_read = await self._read_rest()
            if self._fold.ended:
                return await self._end()
            speaks = self._place != place
            if decision is Verdict.CONCLUDE and (is_read or self._is_overdue()):
                return await self._give_up(_reason(answer))
            if decision is Verdict.OVERDUE and not speaks:
                return await self._give_up(f"no end within {self._ports.limits.deadline_s:g} s")
        if word is WireStatus.PARKED and self._place == place:
            await self._note(self._fold.approval or _question(answer))
        if decision is Verdict.REST and self._place == place:
            await self._storage.put_to_rest(self._turn)
            return Conclusion.AT_REST
        return None

    async def _ask(self) -> TurnStatusResult | None:
        try:
            return await self._ports.status(self._turn.turn_id)
        except _NO_ANSWER:
            return None

    async def _read_rest(self) -> bool:
        """Read the log to its end; False if that is not possible now."""
        messages = await self._rest()
        for message in messages or ():
            self._feed(message)
            await self._note(self._fold.approval)
        return messages is not None

    async def _rest(self) -> list[LoggedMessage] | None:
        try:
            return await self._ports.log.rest(self._turn.subject, self._place)
        except StreamNotFound:
            return []
        except Idle:
            return None

    def _feed(self, message: LoggedMessage) -> None:
        self._place = message.stream_seq
        self._fold.feed(message)

    async def _note(self, approval: Approval | None) -> None:
        """Store a question at once, and that it is decided as well."""
        if approval == self._noted or self._fold.ended:
            return
        await self._storage.save_row(waiting_row(self._turn, self._fold.transcript(), approval))
        await self._storage.set_pending_approval(self._turn, approval)
        self._noted = approval

    # The row comes first and the active turn is cleared last: who is killed in between is started
    # again, because the turn is still active, and does the same once more.

    async def _end(self) -> Conclusion:
        seen = self._fold.transcript()
        assert seen.end is not None
        row = final_row(self._turn, seen, seen.end, await self._storage.row(self._turn.turn_id))
        if row is not None:
            await self._storage.save_row(row)
        if seen.end.outcome is Outcome.COMPLETED and seen.response_id is not None:
            conversation_id = self._turn.conversation_id
            await self._storage.set_last_response_id(conversation_id, seen.response_id)
        await self._storage.set_pending_approval(self._turn, None)
        await self._storage.clear_active_turn(self._turn)
        return Conclusion.DONE if seen.end.outcome is Outcome.COMPLETED else Conclusion.FAILED

    async def _give_up(self, reason: str) -> Conclusion:
        stored = await self._storage.row(self._turn.turn_id)
        row = given_up_row(self._turn, self._fold.transcript(), stored, reason)
        if row is not None:
            await self._storage.save_row(row)
        await self._storage.set_pending_approval(self._turn, None)
        await self._storage.give_up(self._turn)
        return Conclusion.GIVEN_UP

    def _waited_s(self) -> float:
        return self._ports.clock() - self._started_s

    def _is_overdue(self) -> bool:
        return self._waited_s() >= self._ports.limits.deadline_s


def _question(answer: TurnStatusResult | None) -> Approval | None:
    """Return the question that only the status tells: its event was lost, or the log is gone."""
    if answer is None or answer.interrupt is None:
        return None
    return Approval(answer.interrupt, answer.park_generation, answer.interrupt_id)


def _reason(answer: TurnStatusResult | None) -> str:
    if answer is None or answer.status is WireStatus.UNKNOWN:
        return "turn control does not know this turn"
    if answer.error is not None:
        return answer.error.message
    return f"turn control says that the turn is {answer.status}, but its log has no end"
