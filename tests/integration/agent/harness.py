"""A real agent in the test's own process: real HTTP, real LangGraph, real SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from tests.support.waiting import PATIENCE_S, ticks
from vystak_turns_agent.app import Agent, create_app
from vystak_turns_agent.builder import GraphBuilder
from vystak_turns_agent.settings import AgentSettings

THREAD = "resp_0123456789abcdef01234567"
TURN = "turn-1"
WAIT_S = PATIENCE_S


T = TypeVar("T")


async def eventually(ask: Callable[[], Awaitable[T]], is_so: Callable[[T], bool]) -> T:
    """Ask again and again what gives no signal: the state behind an HTTP server."""
    async for _ in ticks("the answer that the test waits for"):
        if is_so(answer := await ask()):
            return answer
    raise AssertionError


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Client:
    """Calls an agent as turn control does."""

    http: httpx.AsyncClient
    agent: Agent | None = None

    async def checkpoint(self, thread_id: str = THREAD) -> dict[str, Any]:
        answer = await self.http.get("/v1/_vystak/checkpoint", params={"thread_id": thread_id})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def dispatch(self, **more: Any) -> Stream:
        body = {
            "input": "do it",
            "stream": True,
            "previous_response_id": THREAD,
            "vystak": {"turn_id": more.pop("turn_id", TURN), "epoch": more.pop("epoch", 1)},
        }
        return Stream(self.http, "/v1/responses", body | more)

    def resume(self, **more: Any) -> Stream:
        body = {"thread_id": THREAD, "turn_id": TURN, "epoch": 1, "after_checkpoint_id": None}
        return Stream(self.http, "/v1/_vystak/resume", body | more)

    async def drain(self, epoch: int = 1) -> httpx.Response:
        body = {"thread_id": THREAD, "turn_id": TURN, "epoch": epoch}
        return await self.http.post("/v1/_vystak/drain", json=body)

    async def idle(self, thread_id: str = THREAD) -> dict[str, Any]:
        """Ask until no run is active, as turn control does after a drain."""
        return await eventually(
            lambda: self.checkpoint(thread_id), lambda standing: not standing["active"]
        )

    async def health(self, status: int) -> None:
        """Ask until the agent's health is this."""

        async def ask() -> int:
            return (await self.http.get("/healthz")).status_code

        await eventually(ask, lambda found: found == status)


@dataclass
class Stream:
    """One streaming call."""

    http: httpx.AsyncClient
    path: str
    body: dict[str, Any]

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Give the events as they come; leaving the context drops the connection."""
        async with self.http.stream("POST", self.path, json=self.body) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise AssertionError(f"{answer.status_code}: {answer.text}")
            yield _events(answer)

    async def all(self) -> list[dict[str, Any]]:
        """Give all events until the stream ends."""
        async with asyncio.timeout(WAIT_S), self.opened() as events:
            return [event async for event in events]

    async def refusal(self) -> tuple[int, str]:
        """Give status and reason of a call that is refused."""
        answer = await self.http.post(self.path, json=self.body)
        return answer.status_code, str(answer.json()["reason"])


async def _events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            text = line.removeprefix("data: ")
            yield {"type": "[DONE]"} if text == "[DONE]" else json.loads(text)


async def until(events: AsyncIterator[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Read up to and with the first event that has these fields."""
    seen = []
    async with asyncio.timeout(WAIT_S):
        async for event in events:
            seen.append(event)
            if wanted.items() <= event.items():
                return seen
    raise AssertionError(f"no {wanted} in {seen}")


@contextlib.asynccontextmanager
async def running_agent(
    builder: GraphBuilder, path: Path, *, healthy: bool = True, **settings: Any
) -> AsyncIterator[Client]:
    """Serve the graph on a free port; at the end stop it as SIGTERM does."""
    app = create_app(
        builder, name="tester", settings=AgentSettings(sessions_path=str(path), **settings)
    )
    agent: Agent = app.state.agent
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="on")
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    await asyncio.wait_for(server.up.wait(), WAIT_S)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            client = Client(http, agent)
            await client.health(200 if healthy else 503)
            yield client
    finally:
        server.should_exit = True
        async with asyncio.timeout(WAIT_S):
            await task


async def rest(events: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Read to the end of a stream that must not claim to be complete."""
    seen = []
    async with asyncio.timeout(WAIT_S):
        async for event in events:
            assert event["type"] not in {"response.completed", "response.failed", "[DONE]"}
            seen.append(event)
    return seen


def fold(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a reader sees: text by item, calls and results by call; rollbacks taken back."""
    kept: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "vystak.rollback":
            target = event["checkpoint_id"]
            while kept and not (
                kept[-1]["type"] == "vystak.checkpoint" and kept[-1]["checkpoint_id"] == target
            ):
                kept.pop()
            continue
        kept.append(event)
    seen: dict[str, Any] = {"text": {}, "calls": {}, "results": {}}
    for event in kept:
        _fold_one(seen, event)
    return seen


def _fold_one(seen: dict[str, Any], event: dict[str, Any]) -> None:
    match event["type"]:
        case "response.output_text.delta":
            text = seen["text"].get(event["item_id"], "") + event["delta"]
            seen["text"][event["item_id"]] = text
        case "response.function_call_arguments.done":
            assert event["call_id"] in seen["calls"]
            seen["calls"][event["call_id"]]["arguments"] += event["arguments"]
        case "response.output_item.added" if event["item"]["type"] == "function_call":
            item = event["item"]
            assert item["call_id"] not in seen["calls"], "a call is told once"
            seen["calls"][item["call_id"]] = {"name": item["name"], "arguments": ""}
        case "response.output_item.added":
            item = event["item"]
            assert item["call_id"] not in seen["results"], "a result is told once"
            seen["results"][item["call_id"]] = (item["output"], item.get("error", False))
