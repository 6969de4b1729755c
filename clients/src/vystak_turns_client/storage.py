"""What a panel keeps of a turn, and the port through which the persister writes it.

The store behind the port is the panel's own; `persister_sqlite` is one for examples and tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from vystak_turns_client.fold import Approval

Part: TypeAlias = dict[str, Any]
"""One part of a message, as JSON.

`{"type": "text", "text"}`, or `{"type": "tool", "state", "tool_call_id", "tool_name", "input",
"output", "is_error"}` with state `output-available`, or `approval-requested` for the question of a
parked turn (`tool_call_id` is then `approval:<tool>`); `input` is a JSON text.
"""


class RowState(StrEnum):
    """How a turn stands as far as its row knows."""

    RUNNING = "running"
    """The question that the row showed is decided, the turn goes on."""
    PARKED = "parked"
    """The row ends with a question that waits for a decision."""
    DONE = "done"
    """Final: the log ended with `response.completed`."""
    FAILED = "failed"
    """Final: the log ended with `response.failed`."""
    ERROR = "error"
    """Given up without an end in the log; corrected once the log has one."""


@dataclass(frozen=True, slots=True)
class ActiveTurn:
    """A turn that a persister looks after; `subject` is where its log is."""

    conversation_id: str
    turn_id: str
    subject: str


@dataclass(frozen=True, slots=True)
class MessageRow:
    """The one message that a turn leaves in its conversation.

    `content` is all its text, `error` why the turn failed or was given up.
    """

    turn: ActiveTurn
    content: str
    parts: tuple[Part, ...]
    state: RowState
    error: str | None = None


class Storage(Protocol):
    """Where the panel keeps conversations. Every method is idempotent and durable on return.

    A conversation has at most one active turn, which is either attended by a persister or at rest
    (parked past the deadline; a decision wakes it). A turn that is active no more because a newer
    one superseded it is attended until it has ended, too.
    """

    async def active_turns(self) -> list[ActiveTurn]:
        """Return the turns that have not ended, were not given up and do not rest."""

    async def row(self, turn_id: str) -> MessageRow | None:
        """Return the turn's row, if it has one."""

    async def save_row(self, row: MessageRow) -> None:
        """Insert the turn's row or replace it; a final row is only replaced by a final one."""

    async def set_pending_approval(self, turn: ActiveTurn, approval: Approval | None) -> None:
        """Keep the question that the turn waits on, or None once it waits on nothing."""

    async def set_last_response_id(self, conversation_id: str, response_id: str) -> None:
        """Keep the thread that the conversation's next turn goes on with."""

    async def clear_active_turn(self, turn: ActiveTurn) -> None:
        """Note that the turn has ended; the conversation has no active turn if it was this one."""

    async def give_up(self, turn: ActiveTurn) -> None:
        """Do the same for a turn without an end in its log: it stays unsettled until cleared."""

    async def put_to_rest(self, turn: ActiveTurn) -> None:
        """Leave the turn active, without a persister until `wake`."""

    async def wake(self, turn: ActiveTurn) -> bool:
        """Take the turn back from its rest; tell whether it was at rest."""

    async def unsettled_turns(self, conversation_id: str) -> list[ActiveTurn]:
        """Return the conversation's turns that rest or were given up: see `look_again`."""
