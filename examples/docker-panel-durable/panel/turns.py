"""The panel's side of turns: start them, attend them, decide them, ask how they stand."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext

from panel.settings import Settings
from vystak_turns_client.browser import Frame, frames
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.errors import NotConnected, ReplyTimeout, ServiceUnavailable
from vystak_turns_client.persister import Persister
from vystak_turns_client.persister_log import NatsLog
from vystak_turns_client.persister_pool import PersisterPool
from vystak_turns_client.persister_sqlite import Conversation, SqliteStorage
from vystak_turns_client.storage import ActiveTurn
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.envelope import ProtocolError
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.stream import stream_settings
from vystak_turns_rpc.subjects import turn_subject
from vystak_turns_rpc.vocabulary import Json, WireStatus

RETRY_S = 0.5
STATUS_TIMEOUT_S = 3.0
CANCEL_CHECK_S = 30.0
# A message that was kept but never dispatched is sent after a restart, unless it is older.
TOO_OLD_S = 900.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Link:
    """What there is once the broker was reached; nats-py mends the connection from then on."""

    nc: Client
    js: JetStreamContext
    client: TurnsClient
    pool: PersisterPool


class Turns:
    """Everything that needs the broker; raises NotConnected as long as it was never reached."""

    def __init__(self, settings: Settings, storage: SqliteStorage) -> None:
        self._settings = settings
        self._storage = storage
        self._link: Link | None = None
        self._can_cancel = False
        self._cancel_checked_at_s = -CANCEL_CHECK_S

    @property
    def is_connected(self) -> bool:
        """Whether the broker was reached."""
        return self._link is not None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Reach the broker in the background, and attend the active turns from then on."""
        task = asyncio.create_task(self._stay_connected())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def turn(self, conversation_id: str, turn_id: str) -> ActiveTurn:
        """Name a turn of a conversation."""
        subject = turn_subject(self._settings.turn_base, conversation_id, turn_id)
        return ActiveTurn(conversation_id, turn_id, subject)

    async def send(self, conversation: Conversation, turn: ActiveTurn, text: str) -> None:
        """Keep the user's message, start the turn and attend it.

        Raises ValueError when another turn is active, RpcError when turn control refuses and
        ServiceUnavailable when nobody was there to take it; the turn is then no longer active.
        """
        link = self._reached()
        await self._storage.begin_turn(turn, text)
        try:
            await self._dispatch(link, conversation, turn, text)
        except ReplyTimeout:
            # It may have been taken. Its persister finds out.
            _log.warning("no acknowledgement of turn %s", turn.turn_id)
        except (RpcError, ServiceUnavailable):
            await self._storage.clear_active_turn(turn)
            await link.pool.stop(turn.turn_id)
            raise
        link.pool.start(turn)

    async def decide(self, turn: ActiveTurn, decision: Json, generation: int | None) -> None:
        """Decide a parked turn; raises what `TurnsClient.resume_detached` raises."""
        link = self._reached()
        await link.client.resume_detached(turn.turn_id, decision, generation)
        await link.pool.decided(turn)

    async def cancel(self, turn_id: str) -> None:
        """Stop a turn; raises what `TurnsClient.cancel_detached` raises."""
        await self._reached().client.cancel_detached(turn_id)

    async def status(self, turn_id: str) -> TurnStatusResult | None:
        """Ask how a turn stands; `None`: nobody answers now."""
        try:
            return await self._reached().client.turn_status(turn_id, STATUS_TIMEOUT_S)
        except (ServiceUnavailable, RpcError, ProtocolError):
            return None

    async def can_cancel(self) -> bool:
        """Whether turn control knows how to cancel: asked with no turn, so that nothing stops."""
        now_s = time.monotonic()
        if not self._can_cancel and now_s - self._cancel_checked_at_s >= CANCEL_CHECK_S:
            self._cancel_checked_at_s = now_s
            try:
                await self._reached().client.cancel_detached("", STATUS_TIMEOUT_S)
            except RpcError as error:
                self._can_cancel = error.code == ErrorCode.INVALID_PARAMS
            except (ServiceUnavailable, ProtocolError):
                self._cancel_checked_at_s = -CANCEL_CHECK_S
        return self._can_cancel

    def frames(self, turn: ActiveTurn, last_event_id: str | None) -> AsyncGenerator[Frame, None]:
        """Follow a turn as a browser does."""
        return frames(self._reached().js, turn.subject, last_event_id=last_event_id)

    async def look_again(self, conversation_id: str) -> None:
        """Correct what ended after it was given up."""
        if self._link is not None:
            with suppress(ServiceUnavailable):
                await self._link.pool.look_again(conversation_id)

    async def _dispatch(
        self, link: Link, conversation: Conversation, turn: ActiveTurn, text: str
    ) -> None:
        settings = stream_settings(self._settings.turn_base, self._settings.stream_max_age_s)
        request = self._request(conversation.last_response_id, text)
        deadline_s = time.monotonic() + self._settings.patience_s
        while True:
            try:
                await ensure_stream(link.js, settings)
                await link.client.create_detached(request, turn.turn_id, turn.subject)
            except ServiceUnavailable:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return

    def _request(self, last_response_id: str | None, text: str) -> dict[str, Any]:
        return {
            "model": "",
            "input": text,
            "previous_response_id": last_response_id,
            "store": True,
            "stream": True,
            "user_id": self._settings.user,
            "project_id": "default",
        }

    def _reached(self) -> Link:
        if self._link is None:
            raise NotConnected("the broker has not been reached yet")
        return self._link

    async def _stay_connected(self) -> None:
        nc = await self._connect()
        try:
            client = TurnsClient(nc, self._settings.tasks_subject)
            log = NatsLog(nc.jetstream())
            persister = Persister(self._storage, log, client.turn_status, time.monotonic)
            async with PersisterPool(persister) as pool:
                self._link = Link(nc, nc.jetstream(), client, pool)
                await self._send_again(self._link)
                await asyncio.Event().wait()
        finally:
            self._link = None
            await disconnect(nc)

    async def _connect(self) -> Client:
        while True:
            try:
                return await connect(self._settings.nats_url, self._settings.nats_creds)
            except NotConnected as error:
                _log.info("%s", error)
                await asyncio.sleep(RETRY_S)

    async def _send_again(self, link: Link) -> None:
        """Dispatch what the process before us kept and did not live to dispatch (R5)."""
        left = await self._storage.active_turns()
        while left:
            left = [turn for turn in left if not await self._is_sent(link, turn)]
            await asyncio.sleep(RETRY_S)

    async def _is_sent(self, link: Link, turn: ActiveTurn) -> bool:
        """Whether nothing is left to do for the turn; False: nobody answered."""
        status = await self.status(turn.turn_id)
        if status is None or status.status is not WireStatus.UNKNOWN:
            return status is not None
        conversation = await self._storage.conversation(turn.conversation_id)
        messages = await self._storage.messages(turn.conversation_id)
        mine = [each for each in messages if each.turn_id == turn.turn_id]
        if conversation is None or not mine or time.time() - mine[0].created_at > TOO_OLD_S:
            return True
        try:
            await self._dispatch(link, conversation, turn, mine[0].content)
        except RpcError as error:
            _log.warning("turn %s cannot be dispatched: %s", turn.turn_id, error)
        except ServiceUnavailable:
            return False
        return True
