"""What the application needs from the world, as Protocols.

One behavioural suite runs against every implementation of a port, the simulation's included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.core.findings import AgentView, Tail
from vystak_turns.core.turn import Boundary, Decision, Json, Turn

# --- Journal -----------------------------------------------------------------------------------


class JournalUnavailableError(Exception):
    """The journal cannot be read or written now; nothing was changed."""


class NotOwnerError(JournalUnavailableError):
    """Another process owns the journal by now: this one must stop."""


@dataclass(frozen=True, slots=True)
class BoundaryChange:
    """How a commit changes a turn's boundaries.

    `cut` deletes all that are newer than the boundary of `keep` (`None`: all); `record` adds one.
    """

    record: Boundary | None = None
    cut: bool = False
    keep: str | None = None


class Journal(Protocol):
    """Which turns exist, their status, boundaries, attempts and decisions.

    The process that holds the journal is its only writer, so what is committed is also kept in
    memory: `get`, `open_on_thread` and `unfinished` answer from it without waiting, except for
    ended turns, which are read from disk.
    """

    async def create(self, turn: Turn, request: Json, superseded: Turn | None) -> None:
        """Commit a new turn and, in the same transaction, the changed row of the one it ends."""
        ...

    async def save(self, turn: Turn, boundaries: BoundaryChange | None = None) -> None:
        """Commit a turn's changed row and boundaries in one transaction, then publish it to `get`.

        Raises:
            JournalUnavailableError: nothing was committed.

        """
        ...

    async def get(self, turn_id: str) -> Turn | None:
        """Return the committed turn, or `None`."""
        ...

    async def request(self, turn_id: str) -> Json:
        """Return the request as the caller sent it."""
        ...

    async def boundaries(self, turn_id: str) -> tuple[Boundary, ...]:
        """Return the recorded boundaries, oldest first."""
        ...

    def open_on_thread(self, agent: str, thread_id: str) -> Turn | None:
        """Return the turn that holds the thread (`Turn.holds_thread`), or `None`."""
        ...

    def blocking_thread(self, agent: str, thread_id: str, turn_id: str) -> Turn | None:
        """Return another turn of the thread that has not ended, superseded or not, or `None`."""
        ...

    def unfinished(self) -> tuple[Turn, ...]:
        """Return every turn that has not ended, in order of creation."""
        ...

    def new_token(self, at_least: int = 0) -> int:
        """Return a number larger than every token of any turn; committed with the turn."""
        ...


# --- Agent -------------------------------------------------------------------------------------


class AgentSilentError(Exception):
    """The agent could not be asked: refused, timed out, 5xx, or an answer that makes no sense."""


class CallRefusedError(Exception):
    """The agent did not take a dispatch or resume."""

    def __init__(self, refusal: Refusal, words: str) -> None:
        super().__init__(words)
        self.refusal = refusal
        self.words = words


@dataclass(frozen=True, slots=True)
class DispatchCall:
    """The first call of a turn: `request` with its thread id put in."""

    turn_id: str
    thread_id: str
    epoch: int
    request: Json


@dataclass(frozen=True, slots=True)
class ResumeCall:
    """`catch_up`: send the history after `after_checkpoint_id` (`None`: the turn's start) first."""

    turn_id: str
    thread_id: str
    epoch: int
    catch_up: bool
    after_checkpoint_id: str | None
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """An event to be published unchanged: its type, and its JSON text as it came."""

    type: str
    json: bytes


@dataclass(frozen=True, slots=True)
class Marker:
    """All events of the step that this committed checkpoint closes came before."""

    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Text that was sent ahead was not committed: go back to this checkpoint's marker."""

    checkpoint_id: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The last item of every stream that brought no terminal event."""

    how: StreamEnd


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The agent sends an event larger than the limit, and would at every try: the last item."""

    words: str


StreamItem: TypeAlias = AgentEvent | Marker | RolledBack | TooLarge | Ended
RunCall: TypeAlias = DispatchCall | ResumeCall


class Agent(Protocol):
    """A LangGraph agent over HTTP."""

    async def healthy(self) -> bool:
        """Whether `/healthz` answers 200."""
        ...

    async def view(self, thread_id: str, turn_id: str) -> AgentView:
        """Ask where the thread stands.

        Raises:
            AgentSilentError: it could not be asked.

        """
        ...

    def run(self, call: RunCall) -> AbstractAsyncContextManager[AsyncIterator[StreamItem]]:
        """Dispatch or resume, and read the stream.

        The stream ends after a terminal event, a `TooLarge` or an `Ended` item; it never raises.

        Raises:
            CallRefusedError: on entering, when the agent does not take the call.

        """
        ...

    async def drain(self, thread_id: str, turn_id: str, epoch: int) -> None:
        """Ask the agent to finish the step in flight and stop the run; never raises."""
        ...


# --- Turn log ----------------------------------------------------------------------------------


class LogUnavailableError(Exception):
    """The broker cannot be asked or did not answer; an append may or may not have landed."""


class AppendConflictError(Exception):
    """The log refused an append: the subject's last message is not the expected one."""


class AppendTooLargeError(Exception):
    """The message is larger than the broker takes."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message for a turn's subject.

    `expected_stream_seq` is the stream_seq of the subject's last message, 0 for an empty subject.
    """

    subject: str
    body: bytes
    message_id: str
    token: int
    expected_stream_seq: int


class TurnLog(Protocol):
    """The turn's subject in JetStream."""

    async def append(self, message: LogMessage) -> int:
        """Append and return the stream_seq once it is stored.

        Raises:
            AppendConflictError, AppendTooLargeError, LogUnavailableError

        """
        ...

    async def tail(self, subject: str) -> Tail | None:
        """Return the subject's last message, `None` when it holds none.

        Raises:
            LogUnavailableError: the broker did not answer.

        """
        ...

    async def head_seq(self, subject: str) -> int | None:
        """Return the seq of the subject's first retained message that is one of ours.

        Raises:
            LogUnavailableError: the broker did not answer.

        """
        ...


# --- System ------------------------------------------------------------------------------------


class Clock(Protocol):
    """Wall-clock time and pauses."""

    def now_s(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Pause."""
        ...


class Ids(Protocol):
    """Names and randomness."""

    def thread_id(self) -> str:
        """Return a new thread id: `resp_` and 24 hex digits, ordered by time."""
        ...

    def jitter(self) -> float:
        """Return a random number from 0 to 1."""
        ...
