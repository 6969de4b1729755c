"""Which broker, agent and subjects the options of `turnctl` mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client

from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_rpc import subjects


@dataclass(frozen=True, slots=True)
class Target:
    """The options that every command shares; methods raise ValueError for unusable ones."""

    url: str
    creds: Path | None
    inbox_prefix: str
    prefix: str
    namespace: str
    subject: str | None
    agent: str | None = None

    def tasks_subject(self) -> str:
        """Return the subject on which the agent's turns are asked for."""
        if self.subject:
            return self.subject
        if not self.agent:
            raise ValueError("name the agent: --agent NAME, or VYSTAK_AGENT_NAME")
        return subjects.tasks_subject(self.prefix, self.namespace, self.agent)

    def base(self) -> str:
        """Return the base of the agent's turn subjects."""
        return subjects.turn_base(self.tasks_subject())

    def turn_subject(self, turn: str) -> str:
        """Return the subject that CONVERSATION_ID.TURN_ID or a whole subject means."""
        match turn.split("."):
            case [conversation_id, turn_id]:
                # The base is the same for all agents of a namespace.
                tasks = self.subject or subjects.tasks_subject(self.prefix, self.namespace, "any")
                return subjects.turn_subject(subjects.turn_base(tasks), conversation_id, turn_id)
            case [_]:
                raise ValueError(
                    f"{turn}: a turn id alone does not name a log; give CONVERSATION_ID.TURN_ID, "
                    "as `turnctl dispatch` printed it"
                )
            case _:
                subjects.base_of_turn_subject(turn)
                return turn

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """Connect to the broker for as long as the block lasts."""
        nc = await connect(self.url, self.creds, self.inbox_prefix)
        try:
            yield nc
        finally:
            await disconnect(nc)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[TurnsClient]:
        """Connect, once it is clear whom to ask, for as long as the block lasts."""
        tasks = self.tasks_subject()
        async with self.connected() as nc:
            yield TurnsClient(nc, tasks)
