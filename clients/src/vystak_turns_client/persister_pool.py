"""One persister a turn, each in a task that the pool owns."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Self

from vystak_turns_client.persister import Finding, Persister
from vystak_turns_client.storage import ActiveTurn

RETRY_S: Final = 10.0

_log = logging.getLogger(__name__)


class PersisterPool:
    """`async with PersisterPool(persister) as pool`: attends active turns until closed.

    On entry every active turn gets a persister. One that fails (store or broker) is logged, its
    turn stays active; every `retry_s` seconds the active turns that nobody attends get a new one.
    """

    def __init__(self, persister: Persister, retry_s: float = RETRY_S) -> None:
        """Nothing runs before `__aenter__`."""
        self._persister = persister
        self._storage = persister.storage
        self._retry_s = retry_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._start_all()
        self._keeper = asyncio.create_task(self._keep_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._tasks.values(), *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def attended(self) -> frozenset[str]:
        """The ids of the turns that have a persister now."""
        return frozenset(self._tasks)

    def start(self, turn: ActiveTurn) -> None:
        """Attend a turn that was just created; does nothing for one that is attended already."""
        if turn.turn_id in self._tasks:
            return
        task = asyncio.create_task(self._attend(turn))
        self._tasks[turn.turn_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(turn.turn_id, None))

    async def stop(self, turn_id: str) -> None:
        """Attend a turn no more: it could not be dispatched, and was cleared."""
        task = self._tasks.get(turn_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def decided(self, turn: ActiveTurn) -> None:
        """Attend a turn whose question was just decided: it may have been at rest."""
        await self._storage.wake(turn)
        self.start(turn)

    async def look_again(self, conversation_id: str) -> None:
        """Correct the rows of turns that ended after they were given up or put to rest.

        A turn at rest that goes on (its decision did not reach us) is attended again.
        """
        for turn in await self._storage.unsettled_turns(conversation_id):
            finding = await self._persister.look_again(turn)
            if finding is Finding.GOES_ON and await self._storage.wake(turn):
                self.start(turn)

    async def _attend(self, turn: ActiveTurn) -> None:
        try:
            conclusion = await self._persister.run(turn)
        except Exception:  # noqa: BLE001 - whatever it was, the turn is attended again
            _log.exception("persister of turn %s failed, the turn stays active", turn.turn_id)
        else:
            _log.info("turn %s: %s", turn.turn_id, conclusion)

    async def _keep_all(self) -> None:
        while True:
            await asyncio.sleep(self._retry_s)
            try:
                await self._start_all()
            except Exception:  # noqa: BLE001 - the store may be usable again next time
                _log.exception("the active turns cannot be read, they are read again later")

    async def _start_all(self) -> None:
        for turn in await self._storage.active_turns():
            self.start(turn)
