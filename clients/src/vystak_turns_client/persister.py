"""The panel's loop: from a turn's log to the one row that it leaves in the conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from vystak_turns_client.reader import LoggedMessage
from vystak_turns_client.storage import ActiveTurn, Storage
from vystak_turns_rpc.methods import TurnStatusResult

AskStatus = Callable[[str], Awaitable[TurnStatusResult]]
"""`TurnsClient.turn_status`: raises ServiceUnavailable when nobody answers within 5 s."""
MonotonicClock = Callable[[], float]
"""`time.monotonic`: seconds that never go back."""


class Log(Protocol):
    """A turn's log, as `persister_log.NatsLog` reads it from JetStream."""

    def follow(
        self, subject: str, after_stream_seq: int, idle_s: float
    ) -> AsyncGenerator[LoggedMessage, None]:
        """Yield the messages behind a place, to the terminal event; raises Idle after silence."""

    async def rest(self, subject: str, after_stream_seq: int) -> list[LoggedMessage]:
        """Return the messages behind a place that are there now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`idle_s`: silence before turn control is asked. `deadline_s`: bounds the wait (R9)."""

    idle_s: float = 120.0
    deadline_s: float = 900.0


class Conclusion(StrEnum):
    """How a persister left its turn."""

    DONE = "done"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    """Errored without an end in the log: the turn is unknown, or the deadline has passed."""
    AT_REST = "at_rest"
    """Parked at the deadline: the decision starts a new persister."""


class Persister:
    """Looks after turns, one `run` each; holds no state of its own."""

    def __init__(
        self,
        storage: Storage,
        log: Log,
        status: AskStatus,
        clock: MonotonicClock,
        limits: Limits | None = None,
    ) -> None:
        """Time comes from `clock`, the silence that `log` measures included."""

    async def run(self, turn: ActiveTurn) -> Conclusion:
        """Follow the turn to its end and store its row; may be killed and run again at any point.

        Raises what storage and log raise, and CancelledError: the turn is then still active.
        """
        raise NotImplementedError

    async def look_again(self, turn: ActiveTurn) -> Conclusion | None:
        """Correct the row of a turn that was given up or rests, if its log has ended since.

        Returns None when nothing has changed. Call it for `Storage.unsettled_turns` whenever a
        conversation is shown.
        """
        raise NotImplementedError
