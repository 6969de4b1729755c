"""One persister a turn, each in a task that the pool owns."""

from __future__ import annotations

from typing import Self

from vystak_turns_client.persister import Persister
from vystak_turns_client.storage import ActiveTurn, Storage


class PersisterPool:
    """`async with PersisterPool(persister, storage) as pool`: attends active turns until closed.

    On entry every active turn gets a persister. One that fails (store or broker) leaves its turn
    active and is started again after `retry_s`.
    """

    def __init__(self, persister: Persister, storage: Storage, retry_s: float = 10.0) -> None:
        """Nothing runs before `__aenter__`."""

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *_: object) -> None:
        raise NotImplementedError

    def start(self, turn: ActiveTurn) -> None:
        """Attend a turn that was just created; does nothing for one that is attended already."""
        raise NotImplementedError

    async def decided(self, turn: ActiveTurn) -> None:
        """Attend a turn whose question was just decided: it may have been at rest."""
        raise NotImplementedError

    async def look_again(self, conversation_id: str) -> None:
        """Correct the rows of turns that ended after they were given up or put to rest."""
        raise NotImplementedError
