"""The JSON-RPC methods: check the params, change the journal, answer. One function per method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

import structlog

from vystak_turns.app.ledger import Ledger
from vystak_turns.app.locks import KeyedLocks
from vystak_turns.core.facts import DecisionGiven, EndWanted
from vystak_turns.core.turn import Intent, Json, Turn
from vystak_turns.ports import Clock, Ids, Journal, JournalUnavailableError
from vystak_turns_rpc import methods as wire
from vystak_turns_rpc.envelope import BadRequest, Request, failure, parse_request, success
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.subjects import parse_turn_subject
from vystak_turns_rpc.vocabulary import TurnState, is_thread_id, wire_status

_logger = structlog.get_logger(__name__)


class Drivers(Protocol):
    """What the methods need of the supervisor."""

    def wake(self, turn_id: str) -> None:
        """See to it that the turn has a driver."""
        ...

    def end(self, turn_id: str) -> None:
        """See to it that a turn whose end was committed comes to it."""
        ...

    def waiting_for(self, turn_id: str) -> str | None:
        """What a running turn waits for."""
        ...


class Methods:
    """Answers requests for any of the agents; `bases` maps an agent's name to its turn base."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        drivers: Drivers,
        clock: Clock,
        ids: Ids,
        bases: Mapping[str, str],
    ) -> None:
        self._journal = journal
        self._ledger = ledger
        self._drivers = drivers
        self._clock = clock
        self._ids = ids
        self._bases = bases
        self._threads = KeyedLocks()
        self._methods = {
            wire.CREATE_DETACHED: self.create_detached,
            wire.TURN_STATUS: self.turn_status,
            wire.RESUME_DETACHED: self.resume_detached,
            wire.CANCEL_DETACHED: self.cancel_detached,
        }

    async def handle(self, agent: str, payload: bytes) -> bytes | None:
        """Answer one request; `None`: no reply is due (notification), or none can be true (R8)."""
        try:
            request = parse_request(payload)
        except BadRequest as error:
            return failure(error.id, error.code, error.message)
        try:
            reply = success(request.id, await self._call(agent, request))
        except RpcError as error:
            reply = failure(request.id, error.code, error.message, error.data)
        except Exception as error:  # noqa: BLE001 - whatever it was, the caller gets an answer
            self._tell(request, error)
            if request.method == wire.TURN_STATUS:
                return None  # panels take any error as the turn's end; silence means "wait"
            reply = _internal_error(request, error)
        return None if request.is_notification else reply

    @staticmethod
    def _tell(request: Request, error: Exception) -> None:
        if isinstance(error, JournalUnavailableError):
            _logger.warning("journal unavailable", method=request.method, error=str(error))
        else:
            _logger.error("request failed", method=request.method, exc_info=error)

    async def _call(self, agent: str, request: Request) -> dict[str, Json]:
        method = self._methods.get(request.method)
        if method is None:
            words = f"no method {request.method!r}; known: {', '.join(self._methods)}"
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, words)
        result = await method(agent, request.params)
        return result.model_dump(mode="json")

    async def create_detached(
        self, agent: str, params: dict[str, Json]
    ) -> wire.CreateDetachedResult:
        """`responses/createDetached`: journal the turn, then acknowledge it (R5)."""
        asked = wire.parse_params(wire.CreateDetachedParams, params)
        self._check_subject(agent, asked)
        async with self._ledger.hold(asked.turn_id):
            existing = await self._journal.get(asked.turn_id)
            if existing is None:
                await self._create(agent, asked)
            else:
                await self._check_repeat(agent, existing, asked)
        return wire.CreateDetachedResult(turn_id=asked.turn_id, stream_subject=asked.stream_subject)

    def _check_subject(self, agent: str, asked: wire.CreateDetachedParams) -> None:
        """Nobody may have us publish anywhere but on the turn's own subject (R11)."""
        base = self._bases[agent]
        try:
            parsed = parse_turn_subject(base, asked.stream_subject)
        except ValueError as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, f"stream_subject: {error}") from None
        if parsed.turn_id != asked.turn_id:
            words = f"stream_subject must end with the turn's own id, {asked.turn_id!r}"
            raise RpcError(ErrorCode.INVALID_PARAMS, words)

    async def _check_repeat(
        self, agent: str, existing: Turn, asked: wire.CreateDetachedParams
    ) -> None:
        """A repeat of the same request is acknowledged only; another one is an error (R5)."""
        same = (
            existing.agent == agent
            and existing.stream_subject == asked.stream_subject
            and _canonical(await self._journal.request(asked.turn_id)) == _canonical(asked.request)
        )
        if not same:
            words = f"turn {asked.turn_id!r} exists with another request; use a new turn_id"
            raise RpcError(ErrorCode.INVALID_PARAMS, words)

    async def _create(self, agent: str, asked: wire.CreateDetachedParams) -> None:
        given = _given_thread(asked.request)
        now_s = self._clock.now_s()
        turn = Turn(
            turn_id=asked.turn_id,
            agent=agent,
            stream_subject=asked.stream_subject,
            thread_id=given or self._ids.thread_id(),
            created_at_s=now_s,
            updated_at_s=now_s,
        )
        if given is None:
            await self._ledger.create(turn, asked.request, None)
        else:
            async with self._threads.hold((agent, given)):
                await self._create_on_thread(turn, asked.request)
        self._drivers.wake(turn.turn_id)

    async def _create_on_thread(self, turn: Turn, request: Json) -> None:
        """One turn a thread: refuse while one runs, end a parked one first (R13)."""
        holder = self._journal.open_on_thread(turn.agent, turn.thread_id)
        if holder is None:
            await self._ledger.create(turn, request, None)
            return
        async with self._ledger.hold(holder.turn_id):
            holder = await self._journal.get(holder.turn_id)
            if holder is not None and holder.holds_thread:
                if holder.state is not TurnState.PARKED:
                    raise _thread_busy(holder)
                await self._ledger.create(turn, request, holder)
                self._drivers.wake(holder.turn_id)
                return
            await self._ledger.create(turn, request, None)

    async def turn_status(self, _agent: str, params: dict[str, Json]) -> wire.TurnStatusResult:
        """`responses/turnStatus`: what the journal says, never asking agent or broker (R8)."""
        asked = wire.parse_params(wire.TurnStatusParams, params)
        turn = None if asked.turn_id is None else await self._journal.get(asked.turn_id)
        if turn is None:
            return wire.TurnStatusResult(status=wire_status(None))
        return self._status_of(turn)

    def _status_of(self, turn: Turn) -> wire.TurnStatusResult:
        question = turn.park.question() if turn.park and turn.state is TurnState.PARKED else None
        return wire.TurnStatusResult(
            status=wire_status(turn.state),
            interrupt=question.payload if question else None,
            park_generation=turn.generation if question else None,
            interrupt_id=question.interrupt_id if question else None,
            attempts=turn.attempts,
            last_seq=turn.last_seq,
            thread_id=turn.thread_id,
            waiting_for=self._drivers.waiting_for(turn.turn_id),
            updated_at=turn.updated_at_s,
            error=wire.TurnError(code=turn.failure.code, message=turn.failure.message)
            if turn.failure
            else None,
        )

    async def resume_detached(
        self, _agent: str, params: dict[str, Json]
    ) -> wire.ResumeDetachedResult:
        """`responses/resumeDetached`: commit the decision, then acknowledge it (R6)."""
        asked = wire.parse_params(wire.ResumeDetachedParams, params)
        async with self._ledger.hold(asked.turn_id):
            turn = await self._journal.get(asked.turn_id)
            if turn is None:
                raise RpcError(ErrorCode.INVALID_PARAMS, f"unknown turn {asked.turn_id!r}")
            _check_question(turn, asked)
            await self._ledger.apply_held(turn, DecisionGiven(asked.resume))
        self._drivers.wake(asked.turn_id)
        return wire.ResumeDetachedResult(turn_id=asked.turn_id)

    async def cancel_detached(
        self, _agent: str, params: dict[str, Json]
    ) -> wire.CancelDetachedResult:
        """`responses/cancelDetached`: commit the intent, then acknowledge it.

        The thread stays reserved until the agent has confirmed. A turn that has ended keeps its
        end: the answer's status tells which.
        """
        asked = wire.parse_params(wire.CancelDetachedParams, params)
        async with self._ledger.hold(asked.turn_id):
            turn = await self._journal.get(asked.turn_id)
            if turn is None:
                raise RpcError(ErrorCode.INVALID_PARAMS, f"unknown turn {asked.turn_id!r}")
            if not turn.ended:
                turn, _ = await self._ledger.apply_held(turn, EndWanted(Intent.CANCELLED))
        if not turn.ended:
            self._drivers.end(turn.turn_id)
        return wire.CancelDetachedResult(turn_id=turn.turn_id, status=wire_status(turn.state))


def _check_question(turn: Turn, asked: wire.ResumeDetachedParams) -> None:
    """A decision counts only for the question that is asked now (R6)."""
    if turn.state is not TurnState.PARKED or turn.park is None:
        words = f"turn {turn.turn_id!r} is not parked, its status is {wire_status(turn.state)}"
        raise RpcError(ErrorCode.INVALID_PARAMS, words)
    if asked.park_generation is not None and asked.park_generation != turn.generation:
        words = (
            f"the decision is for question {asked.park_generation} of turn {turn.turn_id!r}, "
            f"which asks question {turn.generation} now: read turnStatus again"
        )
        raise RpcError(ErrorCode.INVALID_PARAMS, words)
    if asked.interrupt_id is not None and asked.interrupt_id != turn.park.asked:
        words = f"turn {turn.turn_id!r} asks about interrupt {turn.park.asked!r} now"
        raise RpcError(ErrorCode.INVALID_PARAMS, words)


def _given_thread(request: dict[str, Json]) -> str | None:
    given = request.get("previous_response_id")
    if given is None:
        return None
    if not isinstance(given, str) or not is_thread_id(given):
        words = "request.previous_response_id must be null or a response id such as resp_…"
        raise RpcError(ErrorCode.INVALID_PARAMS, words)
    return given


def _thread_busy(holder: Turn) -> RpcError:
    words = (
        f"turn {holder.turn_id!r} is running on thread {holder.thread_id!r}; "
        "wait for its end before you start another"
    )
    return RpcError(ErrorCode.THREAD_BUSY, words, {"turn_id": holder.turn_id})


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _internal_error(request: Request, error: Exception) -> bytes:
    if isinstance(error, JournalUnavailableError):
        words = "the journal cannot be written now; nothing was changed, try again"
        return failure(request.id, ErrorCode.JOURNAL_UNAVAILABLE, words)
    return failure(request.id, ErrorCode.INTERNAL_ERROR, "internal error; see the service's log")
