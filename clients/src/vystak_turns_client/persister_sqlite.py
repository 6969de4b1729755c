"""The storage port on SQLite: all that the example panel keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vystak_turns_client.fold import Approval
from vystak_turns_client.storage import ActiveTurn, Part, Storage


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation; times are in seconds since the Unix epoch."""

    conversation_id: str
    title: str
    created_at: float
    last_response_id: str | None
    active_turn: ActiveTurn | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message, the user's (`role` "user") or a turn's ("assistant")."""

    role: str
    content: str
    parts: tuple[Part, ...]
    turn_id: str
    state: str
    error: str | None
    created_at: float


class SqliteStorage(Storage):
    """`async with SqliteStorage(path, clock) as storage`; the port's methods and these.

    `clock` gives seconds since the Unix epoch (`time.time`).
    """

    def __init__(self, path: Path, clock: object) -> None:
        """Open nothing yet."""

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *_: object) -> None:
        raise NotImplementedError

    async def create_conversation(self, conversation_id: str, title: str) -> None:
        """Keep a new conversation; harmless if it is there already."""

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """Return one conversation."""

    async def conversations(self) -> list[Conversation]:
        """Return all conversations, the latest first."""

    async def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title."""

    async def begin_turn(self, turn: ActiveTurn, text: str) -> None:
        """Keep the user's message and make the turn the active one, before it is dispatched.

        Raises ValueError when another turn is active.
        """

    async def messages(self, conversation_id: str) -> list[Message]:
        """Return a conversation's messages, the oldest first."""

    async def pending_approval(self, turn_id: str) -> Approval | None:
        """Return the question that a turn waits on."""
