"""The HTTP port: is the service alive and ready, and the same requests as over NATS, to debug with.

It is no interface for web pages: requests that a browser sends from a page of another host are
refused, since the port has no credentials.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect

from vystak_turns_rpc import envelope, methods
from vystak_turns_rpc.errors import ErrorCode
from vystak_turns_rpc.vocabulary import WireStatus

Handle: TypeAlias = Callable[[str, bytes], Awaitable[bytes | None]]
"""Takes an agent's name and a request, returns the reply; `None`: there is none."""

Readings: TypeAlias = Callable[[], Awaitable[Sequence["Part"]]]
"""Tells how every part stands."""

RETRY_AFTER_S: Final = 1
OWN_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})

_JSON: Final = "application/json"


class NotReadyError(Exception):
    """The journal is not open yet, or the service is stopping."""


class Part(BaseModel):
    """One thing that turns need."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="broker, journal, `subscription N`, `stream N`, `agent N`")
    ready: bool
    needed: bool = Field(True, description="Whether the service is not ready without it")
    state: str = Field(description="One word, for example on, waiting, refused, foreign")
    words: str = Field(description="What is the matter and what to do about it")


class Health(BaseModel):
    """The answer of `/healthz`."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """The answer of `/readyz`."""

    ready: bool
    parts: tuple[Part, ...]


class RpcCall(BaseModel):
    """A JSON-RPC 2.0 request; without `id` it is a notification, which gets no answer."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None = None
    method: str = Field(examples=[methods.TURN_STATUS])
    params: dict[str, Any] = Field(default_factory=dict)


class RpcErrorBody(BaseModel):
    """What went wrong; the codes are those of JSON-RPC and of `vystak_turns_rpc.errors`."""

    code: int
    message: str
    data: Any = None


class RpcAnswer(BaseModel):
    """A JSON-RPC 2.0 answer with either `result` or `error`."""

    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    result: dict[str, Any] | None = None
    error: RpcErrorBody | None = None


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """`agents`: the configured names; `host`: our own address; `body_max_bytes`: a limit."""

    agents: Sequence[str]
    host: str
    body_max_bytes: int
    version: str


class _Api:
    def __init__(self, handle: Handle, readiness: Readings, options: HttpOptions) -> None:
        self._handle = handle
        self._readiness = readiness
        self._options = options

    async def healthz(self) -> Health:
        """Whether the process lives; it says nothing about the broker or the journal."""
        return Health()

    async def readyz(self, response: Response) -> Readiness:
        """Whether requests can be taken: 200, or 503 when a part that is needed is missing.

        An agent is no such part: turns are accepted for it and wait until it is there.
        """
        parts = tuple(await self._readiness())
        ready = all(part.ready for part in parts if part.needed)
        if not ready:
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return Readiness(ready=ready, parts=parts)

    async def rpc(
        self,
        request: Request,
        agent: Annotated[
            str | None, Query(description="Name of the agent; needed when there are several")
        ] = None,
    ) -> Response:
        """Carry out a request as if it had come over NATS.

        Errors of JSON-RPC are answers, so their HTTP status is 200 too. A notification gets 204.
        503 means that nothing can be said truly now: ask again.
        """
        self._refuse_foreign_pages(request)
        payload = await self._read(request)
        if payload is None:
            words = f"the request is larger than {self._options.body_max_bytes} bytes"
            return _json(envelope.failure(None, ErrorCode.INVALID_REQUEST, words))
        try:
            name = self._agent(agent)
        except LookupError as error:
            words = str(error.args[0])
            return _json(envelope.failure(_id_of(payload), ErrorCode.INVALID_PARAMS, words))
        reply = await self._ask(name, payload)
        if reply is not None:
            return _json(reply)
        if _is_notification(payload):
            return Response(status_code=HTTPStatus.NO_CONTENT)
        raise _not_now("the journal cannot be read now")

    async def turn(
        self, turn_id: Annotated[str, Path(description="The id that the caller gave the turn")]
    ) -> methods.TurnStatusResult:
        """Where a turn stands, from the journal; 404 for one that is not in it."""
        call = envelope.request(methods.TURN_STATUS, {"turn_id": turn_id}, 1)
        reply = await self._ask(self._options.agents[0], call)
        if reply is None:
            raise _not_now("the journal cannot be read now")
        status = methods.TurnStatusResult.model_validate(envelope.parse_reply(reply, 1))
        if status.status is WireStatus.UNKNOWN:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no turn {turn_id!r} is known")
        return status

    async def _ask(self, agent: str, payload: bytes) -> bytes | None:
        try:
            return await self._handle(agent, payload)
        except NotReadyError as error:
            raise _not_now(str(error)) from None

    def _agent(self, asked: str | None) -> str:
        known = self._options.agents
        if asked is not None and asked in known:
            return asked
        if asked is None and len(known) == 1:
            return known[0]
        what = "name the agent" if asked is None else f"no agent {asked!r} is configured"
        raise LookupError(f"{what}: ?agent=NAME with one of {', '.join(known)}")

    def _refuse_foreign_pages(self, request: Request) -> None:
        origin = request.headers.get("origin")
        if origin is None:
            return
        if _host_of(origin) not in OWN_HOSTS | {self._options.host}:
            raise HTTPException(HTTPStatus.FORBIDDEN, "not for pages of another host")

    async def _read(self, request: Request) -> bytes | None:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._options.body_max_bytes:
                    return None
        except ClientDisconnect:
            words = "the request was cut short"
            raise HTTPException(HTTPStatus.BAD_REQUEST, words) from None
        return bytes(body)


def create_app(handle: Handle, readiness: Readings, options: HttpOptions) -> FastAPI:
    """Make the HTTP application.

    `handle` may raise `NotReadyError` while requests cannot be taken.
    """
    api = _Api(handle, readiness, options)
    # The pages that FastAPI offers load their scripts from elsewhere: the document is enough.
    app = FastAPI(
        title="Vystak turn control",
        version=options.version,
        description="The HTTP port of turn control: health, and the NATS requests for debugging.",
        docs_url=None,
        redoc_url=None,
    )
    away: dict[int | str, dict[str, Any]] = {503: {"description": "Ask again"}}
    app.add_api_route("/healthz", api.healthz, tags=["health"], summary="Alive?")
    app.add_api_route(
        "/readyz",
        api.readyz,
        tags=["health"],
        summary="Ready?",
        responses={503: {"model": Readiness, "description": "Something is missing"}},
    )
    app.add_api_route(
        "/rpc",
        api.rpc,
        methods=["POST"],
        tags=["turns"],
        summary="One JSON-RPC request",
        response_class=Response,
        responses={**away, 200: {"model": RpcAnswer}, 204: {"description": "A notification"}},
        openapi_extra=_rpc_body(),
    )
    app.add_api_route(
        "/v1/turns/{turn_id}",
        api.turn,
        tags=["turns"],
        summary="Where a turn stands",
        responses={**away, 404: {"description": "No such turn"}},
    )
    return app


def openapi_text(version: str) -> str:
    """Return the OpenAPI document as it is kept in the repository."""

    async def nobody(_agent: str, _payload: bytes) -> bytes | None:
        raise NotReadyError

    async def nothing() -> Sequence[Part]:
        return ()

    app = create_app(nobody, nothing, HttpOptions(("assistant",), "127.0.0.1", 1, version))
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def _rpc_body() -> dict[str, Any]:
    params: Mapping[str, type[BaseModel]] = {
        methods.CREATE_DETACHED: methods.CreateDetachedParams,
        methods.TURN_STATUS: methods.TurnStatusParams,
        methods.RESUME_DETACHED: methods.ResumeDetachedParams,
        methods.CANCEL_DETACHED: methods.CancelDetachedParams,
    }
    calls = [_call_schema(method, model) for method, model in params.items()]
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": {"oneOf": calls}}}}}


def _call_schema(method: str, params: type[BaseModel]) -> dict[str, Any]:
    schema = RpcCall.model_json_schema()
    schema["title"] = method
    schema["properties"]["method"] = {"const": method, "type": "string"}
    schema["properties"]["params"] = params.model_json_schema()
    return schema


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname if origin.isprintable() else None
    except ValueError:
        return None  # half an IPv6 address


def _id_of(payload: bytes) -> envelope.JsonId:
    try:
        return envelope.parse_request(payload).id
    except envelope.BadRequest as error:
        return error.id


def _is_notification(payload: bytes) -> bool:
    try:
        return envelope.parse_request(payload).is_notification
    except envelope.BadRequest:
        return False


def _json(body: bytes) -> Response:
    return Response(body, media_type=_JSON)


def _not_now(words: str) -> HTTPException:
    return HTTPException(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{words or 'not ready'}: ask again",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
