from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support.nats_server import NatsServer
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc import envelope, events
from vystak_turns_rpc.stream import stream_settings

pytestmark = pytest.mark.broker

TASKS = "vystak.default.agents.worker.tasks"
TURN = "vystak.default.streams.c1.t1"


@dataclass(frozen=True)
class Outcome:
    """What the command printed and how it ended."""

    code: int
    out: str
    err: str


async def turnctl(server: NatsServer, *arguments: str) -> Outcome:
    environment = {key: text for key, text in os.environ.items() if "VYSTAK" not in key}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vystak_turns_client.cli", *arguments),
        env={**environment, "VYSTAK_NATS_URL": server.url, "COLUMNS": "80"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect(nats_server.url)
    yield client
    await disconnect(client)


class FakeTurnControl:
    """Keeps what it is asked; answers every request with `result`, or with `refusal` if set."""

    def __init__(self, nc: Client) -> None:
        self.nc = nc
        self.asked: list[envelope.Request] = []
        self.result: dict[str, Any] = {}
        self.refusal: tuple[int, str] | None = None
        self.turn: list[dict[str, Any]] = []

    async def answer(self, message: Msg) -> None:
        request = envelope.parse_request(message.data)
        self.asked.append(request)
        if self.refusal is not None:
            await message.respond(envelope.failure(request.id, *self.refusal))
            return
        await message.respond(envelope.success(request.id, self.result or request.params))
        subject = request.params.get("stream_subject", TURN)
        for seq, event in enumerate(self.turn):
            await publish(self.nc, seq, event, subject)


@pytest.fixture
async def control(nc: Client) -> FakeTurnControl:
    fake = FakeTurnControl(nc)
    await nc.subscribe(TASKS, cb=fake.answer)
    await nc.flush()
    return fake


async def publish(nc: Client, seq: int, event: dict[str, Any], subject: str = TURN) -> None:
    body = events.encode_turn_message(seq, json.dumps(event).encode())
    await nc.jetstream().publish(subject, body)


def delta(text: str) -> dict[str, Any]:
    return {"type": events.TEXT_DELTA, "item_id": "m1", "delta": text}


def call(name: str) -> list[dict[str, Any]]:
    item = {"type": "function_call", "call_id": "c1", "name": name, "arguments": ""}
    done = {"type": events.ARGUMENTS_DONE, "call_id": "c1", "arguments": '{"label": "one"}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "[bold]done[/bold]"}
    added = events.ITEM_ADDED
    return [{"type": added, "item": item}, done, {"type": added, "item": output}]


COMPLETED = {"type": "response.completed", "response": {}}


async def test_dispatch_makes_the_stream_starts_the_turn_and_prints_how_to_watch(
    nats_server: NatsServer, control: FakeTurnControl
) -> None:
    done = await turnctl(nats_server, "dispatch", "hi", "--agent", "worker", "--turn-id", "t9")
    assert (done.code, done.err) == (0, "")
    assert "turn    t9" in done.out
    assert "turnctl watch t9.t9" in done.out
    params = control.asked[0].params
    assert params["stream_subject"] == "vystak.default.streams.t9.t9"
    assert params["request"]["input"] == "hi"
    info = await control.nc.jetstream().stream_info("vystak-default-streams")
    assert info.config.max_age == 3600


async def test_dispatch_with_watch_shows_the_turn_to_its_end(
    nats_server: NatsServer, control: FakeTurnControl
) -> None:
    control.turn = [*call("slow_step"), delta("All "), delta("done."), COMPLETED]
    done = await turnctl(nats_server, "dispatch", "hi", "--agent", "worker", "--watch")
    assert done.code == 0, done.err
    shown = done.out.splitlines()[2:]
    assert shown == [
        '→ slow_step({"label": "one"})',
        "← slow_step: [bold]done[/bold]",
        "All done.",
        "■ completed",
    ]


async def test_dispatch_reports_a_foreign_stream_and_leaves_it(
    nats_server: NatsServer, control: FakeTurnControl
) -> None:
    js = control.nc.jetstream()
    await js.add_stream(
        name="vystak-default-streams", subjects=["vystak.default.streams.>"], max_age=60
    )
    done = await turnctl(nats_server, "dispatch", "hi", "--agent", "worker")
    assert done.code == 0
    assert "max_age" in done.err
    assert (await js.stream_info("vystak-default-streams")).config.max_age == 60


async def test_watch_shows_rewinds_questions_and_the_failure(
    nats_server: NatsServer, nc: Client
) -> None:
    await ensure_stream(nc.jetstream(), stream_settings("vystak.default"))
    turn = [
        delta("kept"),
        delta(" lost"),
        events.rewind(0),
        events.approval_requested({"tool": "rm"}, 3, "i1"),
        events.failed("stopped by hand", "cancelled"),
    ]
    for seq, event in enumerate(turn):
        await publish(nc, seq, event)
    for name in ("c1.t1", TURN):
        done = await turnctl(nats_server, "watch", name)
        assert done.code == 1
        assert done.out.splitlines() == [
            "kept lost",
            "↺ rewind to seq 0; this is kept:",
            "kept",
            '? parked: {"tool": "rm"}',
            "  turnctl resume t1 JSON --generation 3",
            "■ failed (cancelled): stopped by hand",
        ]


async def test_watch_gives_up_after_the_idle_time(nats_server: NatsServer, nc: Client) -> None:
    await ensure_stream(nc.jetstream(), stream_settings("vystak.default"))
    done = await turnctl(nats_server, "watch", "c1.t1", "--idle-s", "0.2")
    assert done.code == 5
    assert "0.2 s" in done.err


async def test_status_shows_what_is_known(
    nats_server: NatsServer, control: FakeTurnControl
) -> None:
    control.result = {
        "status": "parked",
        "interrupt": {"q": 1},
        "park_generation": 2,
        "updated_at": 0,
    }
    done = await turnctl(nats_server, "status", "t1", "--agent", "worker")
    assert done.code == 0
    words = [line.split(None, 1) for line in done.out.splitlines()]
    assert ["status", "parked"] in words
    assert ["question", '{"q": 1}'] in words
    assert ["updated", "1970-01-01 00:00:00Z"] in words
    as_json = await turnctl(nats_server, "status", "t1", "--agent", "worker", "--json")
    assert json.loads(as_json.out)["park_generation"] == 2


async def test_resume_sends_the_decision_for_its_question(
    nats_server: NatsServer, control: FakeTurnControl
) -> None:
    decision = ["resume", "t1", '{"approved": true}', "--generation", "2", "--agent", "worker"]
    done = await turnctl(nats_server, *decision)
    assert done.code == 0, done.err
    expected = {"turn_id": "t1", "resume": {"approved": True}, "park_generation": 2}
    assert control.asked[0].params == expected


async def test_a_refusal_has_its_own_exit_code_and_the_words_of_turn_control(
    nats_server: NatsServer, control: FakeTurnControl
) -> None:
    control.refusal = (-32602, "turn t1 is not parked")
    done = await turnctl(nats_server, "resume", "t1", "true", "--agent", "worker")
    assert done.code == 3
    assert "turn t1 is not parked (code -32602)" in done.err


async def test_nobody_there_has_its_own_exit_code(nats_server: NatsServer) -> None:
    absent = await turnctl(nats_server, "status", "t1", "--agent", "worker")
    assert absent.code == 4
    assert TASKS in absent.err
    no_stream = await turnctl(nats_server, "watch", "c1.t1")
    assert (no_stream.code, "no stream" in no_stream.err) == (4, True)
    await nats_server.kill()
    no_broker = await turnctl(nats_server, "status", "t1", "--agent", "worker")
    assert (no_broker.code, "no broker" in no_broker.err) == (4, True)
