"""The turn's subject in JetStream, over nats-py.

Every append is conditional on the subject's last message and names itself, so a copy that the
broker stored although we never heard of it can be told from a rival's message (R7). What an append
that failed has left behind is found out by reading the subject's last message, never by guessing
from the error: servers answer a retried append differently from release to release.
"""

from __future__ import annotations

from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from vystak_turns.adapters.turnlog_nats.acks import AckInbox
from vystak_turns.adapters.turnlog_nats.api import JetStreamApi, JetStreamError, NoMessageError
from vystak_turns.adapters.turnlog_nats.bodies import StoredMessage, is_ours, read_stored, tail_of
from vystak_turns.adapters.turnlog_nats.streams import Streams
from vystak_turns.core.findings import Tail
from vystak_turns.ports import (
    AppendConflictError,
    AppendTooLargeError,
    LogMessage,
    LogUnavailableError,
)
from vystak_turns_rpc.events import HEADER_EXPECTED, HEADER_MSG_ID, HEADER_TOKEN
from vystak_turns_rpc.subjects import base_of_turn_subject, stream_name

_WRONG_LAST_SEQ: Final = frozenset({10071, 10164})
_MESSAGE_TOO_LARGE: Final = 10054

# The broker counts headers and body together, and closes the connection over a larger message.
_HEADER_ROOM: Final = 1024

# Foreign messages at the head of a subject that are stepped over before we give up on it.
_HEAD_SEARCH: Final = 100


class NatsTurnLog:
    """`ports.TurnLog` on one connection, which may still be connecting.

    `streams` knows the streams that hold the logs; one that was lost is made again, after which
    the caller's next try works.
    """

    def __init__(
        self, connection: Client, api: JetStreamApi, streams: Streams, ack_timeout_s: float = 5.0
    ) -> None:
        self._connection = connection
        self._api = api
        self._streams = streams
        self._acks = AckInbox(connection, ack_timeout_s)

    async def append(self, message: LogMessage) -> int:
        """Append and return the stream_seq once it is stored.

        Raises:
            AppendConflictError, AppendTooLargeError, LogUnavailableError

        """
        if not self._connection.is_connected:
            raise LogUnavailableError("the broker is not connected")
        if len(message.body) + _HEADER_ROOM > self._connection.max_payload:
            raise AppendTooLargeError(
                f"{len(message.body)} bytes: the broker takes {self._connection.max_payload}, "
                "raise its max_payload"
            )
        headers = {
            HEADER_MSG_ID: message.message_id,
            HEADER_TOKEN: str(message.token),
            HEADER_EXPECTED: str(message.expected_stream_seq),
        }
        try:
            answer = await self._acks.publish(message.subject, message.body, headers)
        except (NatsError, OSError) as error:
            raise LogUnavailableError(f"the append was not sent: {error}") from error
        if answer is None:
            await self._streams.look_again(_stream_of(message.subject))
            raise LogUnavailableError("nobody stores this subject: its stream was missing")
        return _stored_seq(answer)

    async def tail(self, subject: str) -> Tail | None:
        """Return the subject's last message, `None` when it holds none.

        Raises:
            LogUnavailableError: the broker did not answer.

        """
        found = await self._get(_stream_of(subject), {"last_by_subj": subject})
        return None if found is None else tail_of(found)

    async def head_seq(self, subject: str) -> int | None:
        """Return the seq of the subject's first retained message that is one of ours.

        Raises:
            LogUnavailableError: the broker did not answer.

        """
        stream, start = _stream_of(subject), 1
        for _ in range(_HEAD_SEARCH):
            found = await self._get(stream, {"seq": start, "next_by_subj": subject})
            if found is None:
                return None
            seq = is_ours(found)
            if seq is not None:
                return seq
            start = found.stream_seq + 1
        return None

    def disconnected(self) -> None:
        """Tell appends in flight that their connection is gone: no answer will come."""
        self._acks.give_up("the broker's connection is lost")

    async def _get(self, stream: str, query: dict[str, Any]) -> StoredMessage | None:
        try:
            answer = await self._api.ask(f"STREAM.MSG.GET.{stream}", query)
        except NoMessageError:
            return None
        except JetStreamError as error:
            if error.no_stream:
                await self._streams.look_again(stream)
            raise LogUnavailableError(f"stream {stream} cannot be read: {error}") from error
        try:
            return read_stored(answer["message"])
        except (KeyError, TypeError, ValueError) as error:
            raise LogUnavailableError(f"stream {stream}: an answer without sense") from error


def _stored_seq(answer: dict[str, Any]) -> int:
    error = answer.get("error")
    if error is None:
        seq = answer.get("seq")
        if not isinstance(seq, int):
            raise LogUnavailableError(f"an acknowledgement without a sequence: {answer}")
        return seq
    code = error.get("err_code")
    words = f"{error.get('description')} ({code})"
    if code in _WRONG_LAST_SEQ:
        raise AppendConflictError(words)
    if code == _MESSAGE_TOO_LARGE:
        raise AppendTooLargeError(words)
    raise LogUnavailableError(f"the broker refused an append: {words}")


def _stream_of(subject: str) -> str:
    try:
        return stream_name(base_of_turn_subject(subject))
    except ValueError as error:
        raise LogUnavailableError(str(error)) from error
