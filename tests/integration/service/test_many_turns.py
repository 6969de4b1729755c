"""Many turns at once, and turns of more than one agent: nobody waits for a stranger."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.agent_http.raw import CHUNKED, LAST_CHUNK, Connection
from tests.support.caller import QUICK, Caller, connected, types
from tests.support.checkers import check_one_end, check_sequence
from tests.support.running_service import AGENT, TASKS, running_service
from tests.support.scripted_agent import (
    COMPLETED,
    CREATED,
    frame,
    scripted_agent,
    stands_at,
    word,
)
from tests.support.waiting import ticks, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer
    from tests.support.scripted_agent import ScriptedAgent

pytestmark = pytest.mark.broker


@asynccontextmanager
async def serving(
    folder: Path, server: NatsServer, agents: dict[str, ScriptedAgent], **more: Any
) -> AsyncIterator[dict[str, Caller]]:
    """A service of these agents, and a caller for each."""
    urls = {name: agent.raw.url for name, agent in agents.items()}
    options = {**QUICK, "stop_grace_s": 0, **more}
    async with AsyncExitStack() as exits:
        service = await exits.enter_async_context(
            running_service(folder, server.url, agents=urls, **options)
        )
        await service.until_ready()
        client = await connected(server.url)
        exits.push_async_callback(client.close)
        yield {name: Caller(client, TASKS.replace(AGENT, name)) for name in agents}


class Gate:
    """Runs that begin, and end when they are let."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def answer(self, connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(frame(CREATED), frame(word("a")))
        await self.opened.wait()
        await connection.chunks(frame(COMPLETED))
        await connection.send(LAST_CHUNK)


async def test_w47_runs_are_bounded_every_dispatch_is_acknowledged_and_all_come_to_an_end(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    limit, ids = 3, [f"t{number:02}" for number in range(20)]
    gate = Gate()
    async with scripted_agent(gate.answer) as agent:
        options = {"max_running_turns": limit}
        async with serving(tmp_path, nats_server, {AGENT: agent}, **options) as callers:
            caller = callers[AGENT]
            for turn_id in ids:
                await caller.create(turn_id)
            await until(lambda: agent.open_runs == limit, "as many run as may")
            waiting = [(await caller.status(turn_id))["waiting_for"] for turn_id in ids]
            gate.opened.set()
            for turn_id in ids:
                await caller.until(turn_id, "done")

    assert waiting == [None] * limit + ["slot"] * (len(ids) - limit)
    assert agent.most_runs == limit
    begun = [request.json["vystak"]["turn_id"] for request in agent.runs]
    assert begun == ids, "first come, first served"


async def test_w48_all_turns_of_a_service_that_died_are_gone_on_with_side_by_side(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    ids = [f"t{number}" for number in range(10)]
    gate = Gate()
    async with scripted_agent(gate.answer) as agent:
        async with serving(tmp_path, nats_server, {AGENT: agent}) as callers:
            for turn_id in ids:
                await callers[AGENT].create(turn_id)
            await until(lambda: agent.open_runs == len(ids), "all run")
        await until(lambda: agent.open_runs == len(ids), "the runs outlive their readers")
        gate.opened.set()
        await until(lambda: agent.open_runs == 0, "they end unread")
        later = Gate()
        agent.calls, agent.view = [later.answer], stands_at("ck1")
        async with serving(tmp_path, nats_server, {AGENT: agent}) as callers:
            await until(lambda: agent.open_runs == len(ids), "all are gone on with at once")
            later.opened.set()
            for turn_id in ids:
                await callers[AGENT].until(turn_id, "done")
                log = await callers[AGENT].log(turn_id)
                check_one_end(log, "response.completed")
                check_sequence(log)

    resumed = [request.target for request in agent.runs[len(ids) :]]
    assert resumed == ["/v1/_vystak/resume"] * len(ids)


async def test_w45_a_service_of_another_agent_leaves_the_turns_of_this_one_alone(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    gate = Gate()
    async with scripted_agent(gate.answer) as one, scripted_agent(gate.answer) as other:
        async with serving(tmp_path, nats_server, {"one": one, "other": other}) as callers:
            await callers["one"].create("t1")
            await until(lambda: one.open_runs == 1, "it runs")
            async for _ in ticks("it is told"):
                if len(await callers["one"].log("t1")) == 2:
                    break
        async with serving(tmp_path, nats_server, {"other": other}) as callers:
            gate.opened.set()
            await callers["other"].create("t2")
            await callers["other"].until("t2", "done")
            alone = await callers["other"].status("t1")
            log = await callers["other"].log("t1")
        one.view = stands_at("ck1")
        async with serving(tmp_path, nats_server, {"one": one, "other": other}) as callers:
            await callers["one"].until("t1", "done")

    assert alone["status"] == "running"
    assert types(log) == ["created", "output_text.delta"]
    assert len(other.runs) == 1
    assert len(one.runs) == 2
