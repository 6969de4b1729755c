"""The persister on a real broker: idle gaps, races, outages, and SIGKILL at random points."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support.distributions import ROOT
from tests.support.nats_server import NatsServer
from tests.support.scripted_log import status
from tests.support.turn_events import COMPLETED, CREATED, asks, called, delta, result, rewind
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.persister import Conclusion, Limits, Persister
from vystak_turns_client.persister_log import NatsLog
from vystak_turns_client.persister_sqlite import Message, SqliteStorage
from vystak_turns_client.storage import ActiveTurn, RowState
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.stream import stream_settings

pytestmark = pytest.mark.broker

BASE = "vystak.default"
STREAM = "vystak-default-streams"
TURN = ActiveTurn("c1", "t1", f"{BASE}.streams.c1.t1")
SOON = Limits(idle_s=0.1)
PATIENCE_S = 30.0

Ask = Callable[[str], Awaitable[TurnStatusResult]]


class Turn:
    """The turn's log, written as turn control would."""

    def __init__(self, js: JetStreamContext) -> None:
        self.js = js
        self.seq = 0

    async def say(self, *said: dict[str, Any]) -> None:
        for event in said:
            body = json.dumps({"seq": self.seq, "event": event}).encode()
            await self.js.publish(TURN.subject, body, timeout=10)
            self.seq += 1


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect(nats_server.url, on_error=lambda _: None)
    yield client
    await disconnect(client)


@pytest.fixture
async def turn(nc: Client) -> Turn:
    js = nc.jetstream()
    await ensure_stream(js, stream_settings(BASE))
    return Turn(js)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    async with SqliteStorage(tmp_path / "panel.db", time.time) as opened:
        await opened.create_conversation("c1", "first")
        await opened.begin_turn(TURN, "hello")
        yield opened


async def row(store: SqliteStorage) -> Message:
    (found,) = [one for one in await store.messages("c1") if one.role == "assistant"]
    return found


async def attended(turn: Turn, store: SqliteStorage, ask: Ask, limits: Limits = SOON) -> Conclusion:
    persister = Persister(store, NatsLog(turn.js), ask, time.monotonic, limits)
    async with asyncio.timeout(PATIENCE_S):
        return await persister.run(TURN)


async def test_a_turn_that_completes_within_the_idle_race_is_done(
    turn: Turn, store: SqliteStorage
) -> None:
    """W55: completed is published after the silence, before the answer `done`."""
    await turn.say(CREATED, delta("a"))

    async def done(_: str) -> TurnStatusResult:
        await turn.say(delta("b"), COMPLETED)
        return status("done")

    assert await attended(turn, store, done) is Conclusion.DONE
    assert ((await row(store)).content, (await row(store)).state) == ("ab", RowState.DONE)


async def test_while_nobody_answers_the_turn_is_waited_for(
    nc: Client, turn: Turn, store: SqliteStorage
) -> None:
    client = TurnsClient(nc, f"{BASE}.agents.worker.tasks")
    asked = 0

    async def ask(turn_id: str) -> TurnStatusResult:
        nonlocal asked
        asked += 1
        if asked == 3:
            await turn.say(delta("a"), COMPLETED)
        return await client.turn_status(turn_id)

    assert await attended(turn, store, ask) is Conclusion.DONE
    assert (await row(store)).content == "a"


async def test_a_broker_that_dies_costs_nothing(
    nats_server: NatsServer, turn: Turn, store: SqliteStorage
) -> None:
    await turn.say(CREATED, delta("a"))
    asked = 0

    async def ask(_: str) -> TurnStatusResult:
        nonlocal asked
        asked += 1
        if asked == 1:
            await nats_server.kill()
        if asked == 3:
            await nats_server.start()
            await turn.say(delta("b"), COMPLETED)
        return status("running")

    assert await attended(turn, store, ask) is Conclusion.DONE
    assert (await row(store)).content == "ab"


async def test_a_stream_that_is_made_anew_is_read_from_its_start(
    turn: Turn, store: SqliteStorage
) -> None:
    """Turn control then repairs the log: a rewind to -1, and everything again."""
    await turn.say(CREATED, *(delta(".") for _ in range(20)))
    is_new = False

    async def ask(_: str) -> TurnStatusResult:
        nonlocal is_new
        if not is_new:
            is_new = True
            await turn.js.delete_stream(STREAM)
            await ensure_stream(turn.js, stream_settings(BASE))
            await turn.say(rewind(-1), delta("again"), COMPLETED)
        return status("running")

    assert await attended(turn, store, ask) is Conclusion.DONE
    assert (await row(store)).content == "again"


async def test_a_stream_that_is_not_there_yet_is_a_silent_one(
    nc: Client, store: SqliteStorage
) -> None:
    turn = Turn(nc.jetstream())
    asked = 0

    async def ask(_: str) -> TurnStatusResult:
        nonlocal asked
        asked += 1
        if asked == 2:
            await ensure_stream(turn.js, stream_settings(BASE))
            await turn.say(delta("a"), COMPLETED)
        return status("running")

    assert await attended(turn, store, ask) is Conclusion.DONE
    assert (await row(store)).content == "a"


async def test_a_turn_whose_stream_is_gone_is_given_up_once_it_is_over(
    nc: Client, store: SqliteStorage
) -> None:
    async def failed(_: str) -> TurnStatusResult:
        return status("failed")

    assert await attended(Turn(nc.jetstream()), store, failed) is Conclusion.GIVEN_UP


@pytest.mark.parametrize(
    ("word", "expected"), [("running", Conclusion.GIVEN_UP), ("parked", Conclusion.AT_REST)]
)
async def test_the_deadline_holds_in_real_time(
    turn: Turn, store: SqliteStorage, word: str, expected: Conclusion
) -> None:
    await turn.say(delta("a"), asks("rm"))

    async def ask(_: str) -> TurnStatusResult:
        return status(word)

    limits = Limits(idle_s=0.1, deadline_s=0.4)
    assert await attended(turn, store, ask, limits) is expected


SAID = [
    CREATED,
    delta("Let me see. "),
    *called("c1", "ls"),
    result("c1", "a b"),
    delta("lost", "m2"),
    *called("c2", "rm"),
    rewind(5),
    delta("Deleting. ", "m2"),
    *called("c3", "rm"),
    result("c3", "Interrupt()", error=True),
    asks("rm", name="a"),
    *called("c4", "rm"),
    result("c4", "gone"),
    delta("Done.", "m3"),
    COMPLETED,
]


@pytest.mark.processes
async def test_killed_at_random_points_it_leaves_one_right_row(
    nats_server: NatsServer, turn: Turn, store: SqliteStorage, tmp_path: Path
) -> None:
    chance = random.Random(20)
    deaths = 0
    while True:
        await turn.say(*SAID[turn.seq : turn.seq + chance.randrange(6)])
        is_whole = turn.seq == len(SAID)
        # It dies at one of the messages at the latest, unless the log is whole.
        points = chance.randrange(60 if is_whole else max(turn.seq, 1))
        if turn.seq == 0:
            continue
        code = await persister_process(nats_server.url, tmp_path / "panel.db", points)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
        assert deaths < 60

    assert deaths >= 5
    found = await row(store)
    assert (found.content, found.state) == ("Let me see. Deleting. Done.", RowState.DONE)
    assert [part.get("tool_call_id", "text") for part in found.parts] == [
        "text",
        "c1",
        "text",
        "c4",
        "text",
    ]
    assert await store.active_turns() == []
    conversation = await store.conversation("c1")
    assert conversation is not None
    assert (conversation.active_turn, conversation.last_response_id) == (None, "resp_1")


async def persister_process(url: str, database: Path, kill_at: int) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.persister_process"),
        *(url, str(database), TURN.conversation_id, TURN.turn_id, TURN.subject, str(kill_at)),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        return await asyncio.wait_for(process.wait(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
