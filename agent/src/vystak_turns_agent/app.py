"""The HTTP side: routes, and the agent's life from waiting for its file to letting go of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from vystak_turns_agent.bodies import (
    BadBodyError,
    DrainBody,
    ResponsesBody,
    parse_body,
    parse_resume,
)
from vystak_turns_agent.builder import Graph, GraphBuilder, build_graph, with_checkpointer
from vystak_turns_agent.checkpointer import (
    SaverError,
    held_lock,
    opened_saver,
    resolve_sessions_path,
)
from vystak_turns_agent.orders import UNAVAILABLE, RefusedError
from vystak_turns_agent.render import text_of
from vystak_turns_agent.runs import Runs
from vystak_turns_agent.settings import AgentSettings
from vystak_turns_agent.sse import EventStream
from vystak_turns_agent.threads import Standing, ThreadRecord, Threads
from vystak_turns_agent.work import CountingExecutor, Run

RETRY_AFTER_S: Final = "1"


@dataclass(slots=True)
class Agent:
    """One agent: a graph, its file, its runs. `runs` exists while the file's lock is held."""

    name: str
    graph: Graph
    settings: AgentSettings
    path: Path
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = lambda: secrets.token_hex(12)
    runs: Runs | None = None
    draining: bool = False
    problem: str = "another agent holds the sessions: ask again later"
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG002
        """Serve from start to stop; requests are answered 503 until the lock is held."""
        executor = CountingExecutor(self.settings.worker_threads, thread_name_prefix="graph")
        asyncio.get_running_loop().set_default_executor(executor)
        async with asyncio.TaskGroup() as group:
            life = group.create_task(self._live(), name="agent")
            try:
                yield
            finally:
                if self.runs is None:
                    life.cancel()
                await self.drain()
                self._stop.set()

    async def drain(self) -> None:
        """Take no more work and wait until all runs stopped after their steps (R12)."""
        self.draining = True
        if self.runs is not None:
            self.runs.drain_all()
            await self.runs.none_left()

    async def _live(self) -> None:
        """Hold the file and serve; what keeps us from it is tried again and told in words."""
        log = structlog.get_logger("vystak_turns_agent")
        while True:
            try:
                await self._serve_file(log)
            except (OSError, sqlite3.Error) as error:
                self.runs = None
                self.problem = f"cannot use {self.path}: {error}"
                log.warning("cannot use the file", path=str(self.path), error=str(error))
                await asyncio.sleep(self.settings.file_retry_s)
            else:
                return

    async def _serve_file(self, log: Any) -> None:
        log.info("waiting for the lock", path=str(self.path))
        async with (
            held_lock(self.path, self.settings.lock_retry_s),
            opened_saver(self.path) as saver,
            asyncio.TaskGroup() as group,
        ):
            graph = with_checkpointer(self.graph, saver)
            threads = Threads(graph, saver, self.settings.threads_remembered)
            self.runs = Runs(
                self.name, threads, self.settings, group, self.now, self.new_turn_id, self.draining
            )
            log.info("ready", agent=self.name, path=str(self.path))
            await self._stop.wait()

    def new_thread_id(self) -> str:
        """Name a thread as the wire wants it."""
        return f"resp_{self.new_id()}"

    def new_turn_id(self) -> str:
        """Name a turn for a caller that is not turn control."""
        return f"plain_{self.new_id()}"

    def ready(self) -> Runs:
        """Return the runs; raises RefusedError while there can be none."""
        if self.draining:
            raise RefusedError(UNAVAILABLE, "draining", "the agent is stopping: ask again later")
        if self.runs is None:
            raise RefusedError(UNAVAILABLE, "starting", self.problem)
        return self.runs


def create_app(
    graph_builder: GraphBuilder,
    *,
    name: str,
    settings: AgentSettings | None = None,
) -> FastAPI:
    """Serve a graph as a durable agent named `name`.

    `graph_builder` is a StateGraph, a callable returning one, or a callable taking `checkpointer`
    and returning a compiled graph; its state keeps its messages under `messages`. Raises
    GraphRefusedError for a graph that cannot be served durably (static breakpoints).
    Settings come from the environment when none are given.
    """
    settings = settings or AgentSettings.from_environment(os.environ)
    agent = Agent(
        name, build_graph(graph_builder), settings, resolve_sessions_path(settings.sessions_path)
    )
    app = FastAPI(title=name, lifespan=agent.lifespan, docs_url=None, redoc_url=None)
    app.state.agent = agent
    app.add_exception_handler(RefusedError, _answer_refused)
    app.add_exception_handler(BadBodyError, _answer_bad_body)
    app.add_exception_handler(SaverError, _answer_saver_trouble)
    for method, path, endpoint in _ROUTES:
        app.add_api_route(path, endpoint, methods=[method], response_model=None)
    return app


async def get_health(request: Request) -> Response:
    """Answer 200 while turns are taken."""
    _agent(request).ready()
    return JSONResponse({"status": "ok"})


async def post_responses(request: Request) -> Response:
    """Dispatch a turn: a stream, or one response object at its end."""
    agent = _agent(request)
    body = parse_body(ResponsesBody, await _body(request))
    order = body.to_order(
        agent.new_thread_id, agent.new_turn_id, agent.settings.caller_fields_max_bytes
    )
    run = await agent.ready().dispatch(order)
    return _stream(agent, run) if body.stream else await _whole(agent, run)


async def get_response(request: Request) -> Response:
    """Return the last assistant message of a thread."""
    agent = _agent(request)
    thread_id = request.path_params["response_id"]
    standing = await agent.ready().threads.standing(thread_id)
    texts = [text_of(message) for message in standing.messages if message.type == "ai"]
    if not texts:
        return _error(404, "unknown_thread", f"no response {thread_id}")
    created_at = int(agent.now())
    return JSONResponse(_response_object(agent, thread_id, created_at, "completed", texts[-1]))


async def get_models(request: Request) -> Response:
    """List the one model that an agent is."""
    name = _agent(request).name
    return JSONResponse(
        {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "vystak"}]}
    )


async def get_card(request: Request) -> Response:
    """Return a minimal agent card; the routes for turn control are not on it."""
    return JSONResponse(
        {
            "name": _agent(request).name,
            "url": str(request.base_url),
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        }
    )


async def get_checkpoint(request: Request) -> Response:
    """Tell where a thread stands."""
    thread_id = request.query_params.get("thread_id")
    if not thread_id:
        raise BadBodyError("thread_id required")
    threads = _agent(request).ready().threads
    record = await threads.record(thread_id)
    active = record.run is not None  # before the state: a run that ends meanwhile did write it
    standing = await threads.standing(thread_id)
    return JSONResponse(_checkpoint_answer(standing, record, active=active))


async def post_resume(request: Request) -> Response:
    """Go on with a turn: catch-up, then live."""
    agent = _agent(request)
    order = parse_resume(await _body(request))
    return _stream(agent, await agent.ready().resume(order))


async def post_drain(request: Request) -> Response:
    """Ask a thread's run to stop after the step in flight; answers at once."""
    body = parse_body(DrainBody, await _body(request))
    active = await _agent(request).ready().drain(body.thread_id, body.epoch)
    return JSONResponse({"active": active})


_ROUTES: Final = (
    ("GET", "/healthz", get_health),
    ("POST", "/v1/responses", post_responses),
    ("GET", "/v1/responses/{response_id}", get_response),
    ("GET", "/v1/models", get_models),
    ("GET", "/.well-known/agent.json", get_card),
    ("GET", "/v1/_vystak/checkpoint", get_checkpoint),
    ("POST", "/v1/_vystak/resume", post_resume),
    ("POST", "/v1/_vystak/drain", post_drain),
)


def _checkpoint_answer(standing: Standing, record: ThreadRecord, *, active: bool) -> dict[str, Any]:
    if standing.turn_id is not None:
        record.note_turn(standing.turn_id)
    return {
        "checkpoint_id": standing.checkpoint_id,
        "interrupted": standing.has_tasks,
        "interrupts": list(standing.interrupts.values()),
        "interrupt_ids": list(standing.interrupts),
        "turn_id": standing.turn_id,
        "epoch": standing.epoch,
        "active": active,
        "finished": standing.is_finished,
        "error": standing.error,
        "turns": list(record.turns),
    }


def _stream(agent: Agent, run: Run) -> Response:
    return EventStream(run.channel, agent.settings.heartbeat_s, agent.clock)


async def _whole(agent: Agent, run: Run) -> Response:
    run.channel.detach()  # nobody reads the events
    outcome = await asyncio.shield(run.outcome)
    if outcome.status == "drained":
        return _error(UNAVAILABLE, "draining", "the run was stopped in order: resume it")
    if outcome.error is not None:
        return _error(500, "graph_error", outcome.error)
    return JSONResponse(
        _response_object(agent, run.thread_id, run.created_at, outcome.status, outcome.text)
    )


def _response_object(
    agent: Agent, thread_id: str, created_at: int, status: str, text: str
) -> dict[str, Any]:
    part = {"type": "output_text", "text": text}
    return {
        "id": thread_id,
        "object": "response",
        "created_at": created_at,
        "model": agent.name,
        "status": status,
        "output": [{"type": "message", "role": "assistant", "content": [part]}],
    }


async def _body(request: Request) -> bytes:
    limit = _agent(request).settings.body_max_bytes
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise RefusedError(413, "too_large", f"the body has more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _agent(request: Request) -> Agent:
    agent: Agent = request.app.state.agent
    return agent


def _error(status: int, reason: str, words: str) -> JSONResponse:
    headers = {"retry-after": RETRY_AFTER_S} if status == UNAVAILABLE else None
    return JSONResponse({"error": words, "reason": reason}, status, headers)


async def _answer_refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RefusedError)
    return _error(error.status, error.reason, str(error))


async def _answer_bad_body(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _error(400, "bad_request", str(error))


async def _answer_saver_trouble(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _error(UNAVAILABLE, "storage", str(error))
