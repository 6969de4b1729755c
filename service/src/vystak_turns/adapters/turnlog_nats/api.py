"""Requests to JetStream's own API, with every failure as one error."""

from __future__ import annotations

import json
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

_NO_STREAM: Final = 10059
_NO_MESSAGE: Final = 10037


class JetStreamError(Exception):
    """JetStream did not answer (`code` is `None`), or answered with an error."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code

    @property
    def no_stream(self) -> bool:
        """Whether the stream does not exist."""
        return self.code == _NO_STREAM


class NoMessageError(JetStreamError):
    """The stream has no such message."""


class JetStreamApi:
    """One request, one JSON object."""

    def __init__(self, connection: Client, timeout_s: float = 5.0, prefix: str = "$JS.API") -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._prefix = prefix

    async def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            JetStreamError: there was no answer, or it is an error.

        """
        if not self._connection.is_connected:
            raise JetStreamError("the broker is not connected")
        payload = json.dumps(body, separators=(",", ":")).encode()
        try:
            message = await self._connection.request(
                f"{self._prefix}.{what}", payload, timeout=self._timeout_s
            )
        except NoRespondersError as error:
            words = "JetStream does not answer: is it switched on (nats-server -js)?"
            raise JetStreamError(words) from error
        except TimeoutError as error:
            words = f"no answer within {self._timeout_s:g} s (these credentials may not ask it?)"
            raise JetStreamError(words) from error
        except (NatsError, OSError) as error:
            raise JetStreamError(f"the broker cannot be asked: {error}") from error
        return _read(message.data)


def _read(payload: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(payload)
    except ValueError as error:
        raise JetStreamError("an answer that is not JSON") from error
    if not isinstance(answer, dict):
        raise JetStreamError("an answer that is no JSON object")
    refusal = answer.get("error")
    if not isinstance(refusal, dict):
        return answer
    code = refusal.get("err_code")
    words = f"{refusal.get('description')} ({code})"
    if code == _NO_MESSAGE:
        raise NoMessageError(words, code)
    raise JetStreamError(words, code)
