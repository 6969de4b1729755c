"""One method per RPC of turn control, with typed results and typed errors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from nats import errors as nats_errors
from nats.aio.client import Client
from pydantic import ValidationError

from vystak_turns_client.errors import NoResponders, NotConnected, ReplyTimeout
from vystak_turns_rpc import envelope, methods
from vystak_turns_rpc.envelope import ProtocolError
from vystak_turns_rpc.vocabulary import Json

CREATE_TIMEOUT_S: Final = 30.0
ASK_TIMEOUT_S: Final = 5.0

ResultT = TypeVar("ResultT", bound=methods.Result)


def _random_id() -> str:
    return uuid.uuid4().hex


class TurnsClient:
    """Asks turn control, over a connection that the caller owns, on one agent's tasks subject.

    Every method raises RpcError for an error reply, a ServiceUnavailable (NoResponders,
    ReplyTimeout, NotConnected) when nobody answered, and ProtocolError for an unreadable reply.
    """

    def __init__(
        self, nc: Client, tasks_subject: str, new_id: Callable[[], str] = _random_id
    ) -> None:
        """`new_id` makes the ids of requests."""
        self._nc = nc
        self._subject = tasks_subject
        self._new_id = new_id

    async def create_detached(
        self,
        request: Mapping[str, Any],
        turn_id: str,
        stream_subject: str,
        timeout_s: float = CREATE_TIMEOUT_S,
    ) -> methods.CreateDetachedResult:
        """Start a turn; once this returns it will be carried out (R5).

        After a ServiceUnavailable repeat it with the same arguments: it is not started twice.
        """
        params = {"request": request, "turn_id": turn_id, "stream_subject": stream_subject}
        result = methods.CreateDetachedResult
        return await self._call(methods.CREATE_DETACHED, params, result, timeout_s)

    async def turn_status(
        self, turn_id: str, timeout_s: float = ASK_TIMEOUT_S
    ) -> methods.TurnStatusResult:
        """Ask where a turn stands. No answer means "keep waiting", never "it is over" (R8)."""
        result = methods.TurnStatusResult
        return await self._call(methods.TURN_STATUS, {"turn_id": turn_id}, result, timeout_s)

    async def resume_detached(
        self,
        turn_id: str,
        resume: Json,
        park_generation: int | None = None,
        interrupt_id: str | None = None,
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> methods.ResumeDetachedResult:
        """Decide a parked turn's question with any JSON value; the first decision counts (R6).

        Name the question by `park_generation` or `interrupt_id`, else whichever is open is decided.
        """
        params = {"turn_id": turn_id, "resume": resume}
        named = {"park_generation": park_generation, "interrupt_id": interrupt_id}
        params |= {key: value for key, value in named.items() if value is not None}
        result = methods.ResumeDetachedResult
        return await self._call(methods.RESUME_DETACHED, params, result, timeout_s)

    async def cancel_detached(
        self, turn_id: str, timeout_s: float = ASK_TIMEOUT_S
    ) -> methods.CancelDetachedResult:
        """Stop a turn; it ends once the agent has finished the step in flight."""
        result = methods.CancelDetachedResult
        return await self._call(methods.CANCEL_DETACHED, {"turn_id": turn_id}, result, timeout_s)

    async def _call(
        self, method: str, params: Mapping[str, Json], result: type[ResultT], timeout_s: float
    ) -> ResultT:
        request_id = self._new_id()
        payload = envelope.request(method, params, request_id)
        reply = envelope.parse_reply(await self._ask(payload, timeout_s), request_id)
        try:
            return result.model_validate(reply)
        except ValidationError as error:
            raise ProtocolError(f"the result of {method} is not as agreed: {error}") from None

    async def _ask(self, payload: bytes, timeout_s: float) -> bytes:
        try:
            reply = await self._nc.request(self._subject, payload, timeout=timeout_s)
        except nats_errors.NoRespondersError:
            raise NoResponders(
                f"nobody serves {self._subject}: "
                "is turn control running, and is the agent's name right?"
            ) from None
        except TimeoutError:
            raise self._silence(timeout_s) from None
        except (
            nats_errors.ConnectionClosedError,
            nats_errors.ConnectionDrainingError,
            nats_errors.ConnectionReconnectingError,
            nats_errors.OutboundBufferLimitError,
        ) as error:
            raise NotConnected(f"no connection to the broker: {error}") from None
        return reply.data

    def _silence(self, timeout_s: float) -> ReplyTimeout | NotConnected:
        if not self._nc.is_connected:
            return NotConnected(f"the broker was not reachable within {timeout_s:g} s")
        return ReplyTimeout(f"{self._subject} gave no reply within {timeout_s:g} s")
