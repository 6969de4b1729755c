"""The panel's HTTP routes, as thin as they can be."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, status
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from panel.settings import Settings
from panel.turns import Turns
from vystak_turns_client.browser import Frame, encode
from vystak_turns_client.errors import ServiceUnavailable, StreamNotFound
from vystak_turns_client.persister_sqlite import Conversation, Message, SqliteStorage
from vystak_turns_client.storage import ActiveTurn
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.vocabulary import Json

TITLE_MAX = 60
TEXT_MAX = 20_000
NOTE_MAX = 2_000
# Before the browser tries again; its own default is several seconds.
RETRY = b"retry: 500\n\n"

_log = logging.getLogger(__name__)

Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_MAX, strip_whitespace=True)]


class Body(BaseModel):
    """A request's body."""

    model_config = ConfigDict(frozen=True)


class NewMessage(Body):
    """What the user says."""

    text: Text


class Decision(Body):
    """The user's answer to the question of a parked turn."""

    turn_id: str
    approved: bool
    note: Annotated[str, Field(max_length=NOTE_MAX)] | None = None
    park_generation: int | None = None


class Cancel(Body):
    """Which turn to stop."""

    turn_id: str


class Routes:
    """The routes and what they need."""

    def __init__(
        self, settings: Settings, storage: SqliteStorage, turns: Turns, closing: asyncio.Event
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._turns = turns
        self._closing = closing

    def router(self) -> APIRouter:
        """Return all of them."""
        router = APIRouter()
        router.add_api_route("/bootstrap", self.bootstrap)
        router.add_api_route("/projects/default/conversations", self.conversations)
        router.add_api_route("/projects/default/conversations", self.create, methods=["POST"])
        one = "/conversations/{conversation_id}"
        router.add_api_route(f"{one}/messages", self.messages)
        router.add_api_route(f"{one}/messages", self.send, methods=["POST"], status_code=202)
        router.add_api_route(f"{one}/stream", self.stream)
        router.add_api_route(f"{one}/status", self.turn_status)
        router.add_api_route(f"{one}/approval", self.approve, methods=["POST"])
        router.add_api_route(f"{one}/cancel", self.cancel, methods=["POST"])
        return router

    async def bootstrap(self) -> dict[str, Any]:
        """Tell the page whose it is."""
        return {"user": self._settings.user, "agent": self._settings.agent}

    async def conversations(self) -> list[dict[str, Any]]:
        """List the conversations, the latest first."""
        return [_conversation_json(each) for each in await self._storage.conversations()]

    async def create(self) -> dict[str, Any]:
        """Begin a conversation."""
        conversation_id = uuid.uuid4().hex
        await self._storage.create_conversation(conversation_id, "")
        return _conversation_json(await self._known(conversation_id))

    async def messages(self, conversation_id: str) -> dict[str, Any]:
        """Show a conversation, after correcting what ended while nobody looked."""
        await self._known(conversation_id)
        await self._turns.look_again(conversation_id)
        # Before the messages: a turn that ends in between is then followed, not missed.
        conversation = await self._known(conversation_id)
        messages = await self._storage.messages(conversation_id)
        return {
            "conversation": _conversation_json(conversation),
            "messages": [_message_json(each) for each in messages],
        }

    async def send(self, conversation_id: str, message: NewMessage) -> dict[str, Any]:
        """Start a turn with what the user says."""
        conversation = await self._known(conversation_id)
        turn = self._turns.turn(conversation_id, uuid.uuid4().hex)
        if not conversation.title:
            await self._storage.rename(conversation_id, _title(message.text))
        try:
            await self._turns.send(conversation, turn, message.text)
        except ValueError as error:
            raise HTTPException(status.HTTP_409_CONFLICT, str(error)) from None
        except RpcError as error:
            raise HTTPException(status.HTTP_502_BAD_GATEWAY, error.message) from None
        except ServiceUnavailable as error:
            raise _unavailable(error) from None
        return {"turn_id": turn.turn_id}

    async def stream(
        self,
        conversation_id: str,
        turn_id: str | None = None,
        after: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Follow the active turn. 204, on which a browser gives up, when there is none."""
        turn = (await self._known(conversation_id)).active_turn
        if turn is None or turn_id not in {None, turn.turn_id}:
            return Response(status_code=status.HTTP_204_NO_CONTENT)
        try:
            frames = self._turns.frames(turn, last_event_id or after)
        except ServiceUnavailable as error:
            raise _unavailable(error) from None
        body = _encoded(frames, self._closing)
        return StreamingResponse(body, media_type="text/event-stream")

    async def turn_status(self, conversation_id: str, turn_id: str | None = None) -> dict[str, Any]:
        """Tell how the active turn, or the one that is named, stands."""
        conversation = await self._known(conversation_id)
        if turn_id is None:
            if conversation.active_turn is None:
                return {"turn_id": None}
            turn_id = conversation.active_turn.turn_id
        elif not await self._has(conversation, turn_id):
            raise HTTPException(status.HTTP_404_NOT_FOUND, "no such turn in this conversation")
        found = await self._turns.status(turn_id)
        answer = {"turn_id": turn_id, "reachable": found is not None}
        if found is None:
            return answer
        can_cancel = await self._turns.can_cancel()
        return {**answer, "can_cancel": can_cancel, **found.model_dump(mode="json")}

    async def approve(self, conversation_id: str, decision: Decision) -> dict[str, bool]:
        """Hand the user's decision over; the first one counts."""
        turn = await self._active(conversation_id, decision.turn_id)
        resume: Json = {
            "approved": decision.approved,
            "decided_by": self._settings.user,
            "note": decision.note or None,
        }
        try:
            generation = decision.park_generation
            if generation is None:
                pending = await self._storage.pending_approval(turn.turn_id)
                generation = pending.park_generation if pending else None
            await self._turns.decide(turn, resume, generation)
        except RpcError as error:
            raise HTTPException(status.HTTP_409_CONFLICT, error.message) from None
        except ServiceUnavailable as error:
            raise _unavailable(error) from None
        return {"ok": True}

    async def cancel(self, conversation_id: str, cancel: Cancel) -> dict[str, bool]:
        """Stop the active turn, where turn control can."""
        turn = await self._active(conversation_id, cancel.turn_id)
        try:
            await self._turns.cancel(turn.turn_id)
        except RpcError as error:
            missing = error.code == ErrorCode.METHOD_NOT_FOUND
            code = status.HTTP_501_NOT_IMPLEMENTED if missing else status.HTTP_409_CONFLICT
            raise HTTPException(code, error.message) from None
        except ServiceUnavailable as error:
            raise _unavailable(error) from None
        return {"ok": True}

    async def _known(self, conversation_id: str) -> Conversation:
        conversation = await self._storage.conversation(conversation_id)
        if conversation is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "no such conversation")
        return conversation

    async def _active(self, conversation_id: str, turn_id: str) -> ActiveTurn:
        turn = (await self._known(conversation_id)).active_turn
        if turn is None or turn.turn_id != turn_id:
            words = "this turn is no longer the conversation's active one"
            raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, words)
        return turn

    async def _has(self, conversation: Conversation, turn_id: str) -> bool:
        messages = await self._storage.messages(conversation.conversation_id)
        return any(message.turn_id == turn_id for message in messages)


async def _encoded(
    frames: AsyncGenerator[Frame, None], closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield the frames as bytes until the turn ends or the panel stops; browsers come again."""
    yield RETRY
    closed = asyncio.create_task(closing.wait())
    coming: asyncio.Task[Frame | None] | None = None
    try:
        while True:
            coming = asyncio.create_task(_next(frames))
            await asyncio.wait({coming, closed}, return_when=asyncio.FIRST_COMPLETED)
            frame = coming.result() if coming.done() else None
            if frame is None:
                return
            yield encode(frame)
    except (ServiceUnavailable, StreamNotFound) as error:
        _log.warning("a browser's stream ended early: %s", error)
    finally:
        # A generator cannot be closed while somebody still waits for its next value.
        tasks = [closed] if coming is None else [closed, coming]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await frames.aclose()


async def _next(frames: AsyncGenerator[Frame, None]) -> Frame | None:
    return await anext(frames, None)


def _unavailable(error: ServiceUnavailable) -> HTTPException:
    words = f"turn control does not answer; try again ({error})"
    return HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, words)


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_MAX else f"{line[: TITLE_MAX - 1]}…"


def _conversation_json(conversation: Conversation) -> dict[str, Any]:
    active = conversation.active_turn
    return {
        "id": conversation.conversation_id,
        "title": conversation.title,
        "created_at": conversation.created_at,
        "last_response_id": conversation.last_response_id,
        "active_turn_id": active.turn_id if active else None,
    }


def _message_json(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "parts": list(message.parts),
        "turn_id": message.turn_id,
        "state": message.state,
        "error": message.error,
        "created_at": message.created_at,
    }
