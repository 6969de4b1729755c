"""Acknowledged publishes through one inbox of our own: a third of the price of `js.publish`."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, TypeAlias

from nats.aio.client import Client
from nats.aio.msg import Msg

from vystak_turns.ports import LogUnavailableError

_NO_RESPONDERS: Final = "503"

Answer: TypeAlias = dict[str, Any] | None


class AckInbox:
    """One subscription, one future a message, one timer for all of them.

    All messages wait equally long, so the oldest one is always the first whose time is up.
    """

    def __init__(self, connection: Client, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._prefix = ""
        self._subscribing = asyncio.Lock()
        self._sent = 0
        self._waiting: dict[str, tuple[float, asyncio.Future[Answer]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Publish and return the stream's answer, `None` when no stream takes the subject.

        Raises:
            LogUnavailableError: there was no answer in time, or one without sense.
            nats.errors.Error: it could not be sent.

        """
        if not self._prefix:
            await self._subscribe()
        self._sent += 1
        token = str(self._sent)
        answer = self._expect(token)
        try:
            await self._connection.publish(subject, body, self._prefix + token, headers)
            return await answer
        finally:
            self._waiting.pop(token, None)

    def give_up(self, words: str) -> None:
        """End every wait."""
        waiting, self._waiting = self._waiting, {}
        for _, answer in waiting.values():
            _fail(answer, words)

    async def _subscribe(self) -> None:
        async with self._subscribing:
            if self._prefix:
                return
            inbox = self._connection.new_inbox()
            await self._connection.subscribe(f"{inbox}.*", cb=self._on_answer)
            self._prefix = f"{inbox}."

    def _expect(self, token: str) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting[token] = (loop.time() + self._timeout_s, answer)
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._expire)
        return answer

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting:
            token, (deadline, answer) = next(iter(self._waiting.items()))
            if deadline > loop.time():
                self._timer = loop.call_at(deadline, self._expire)
                return
            del self._waiting[token]
            _fail(answer, f"the broker gave no answer within {self._timeout_s:g} s")

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._waiting.pop(message.subject[len(self._prefix) :], (0.0, None))
        if answer is None or answer.done():
            return
        if message.headers and message.headers.get("Status") == _NO_RESPONDERS:
            answer.set_result(None)
            return
        try:
            body = json.loads(message.data)
        except ValueError:
            body = None
        if isinstance(body, dict):
            answer.set_result(body)
        else:
            _fail(answer, "the broker's acknowledgement makes no sense")


def _fail(answer: asyncio.Future[Answer], words: str) -> None:
    if not answer.done():
        answer.set_exception(LogUnavailableError(words))
