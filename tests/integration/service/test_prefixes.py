"""W60: a panel that names turns of one prefix and asks for them under another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nats
import pytest

from tests.support.running_service import AGENT, asked, running_service
from vystak_turns_rpc import envelope
from vystak_turns_rpc.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.broker

REQUEST = {"model": "", "input": "Go.", "stream": True}


def create(turn_id: str, stream_subject: str) -> bytes:
    params = {"request": REQUEST, "turn_id": turn_id, "stream_subject": stream_subject}
    return envelope.request("responses/createDetached", params, "1")


async def test_turns_of_a_custom_prefix_may_be_asked_for_under_the_usual_one(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    prefixes = {"nats_subject_prefix": "acme", "nats_more_prefixes": "vystak"}
    async with running_service(tmp_path, nats_server.url, **prefixes) as running:
        await running.until(f"subscription {AGENT}", "on")
        await running.until(f"subscription {AGENT} on vystak.default.agents.{AGENT}.tasks", "on")
        await running.until("stream acme-default-streams", "created")
        client = await nats.connect(nats_server.url)
        try:
            subject = "acme.default.streams.c1.t1"
            usual, own = (f"{p}.default.agents.{AGENT}.tasks" for p in ("vystak", "acme"))

            created = json.loads(await asked(client, create("t1", subject), usual))
            status = envelope.request("responses/turnStatus", {"turn_id": "t1"}, "2")
            answers = [json.loads(await asked(client, status, one)) for one in (usual, own)]
            strayed = json.loads(
                await asked(client, create("t2", "vystak.default.streams.c1.t2"), usual)
            )
        finally:
            await client.close()

    assert created["result"] == {"turn_id": "t1", "stream_subject": subject}
    assert [answer["result"]["status"] for answer in answers] == ["running", "running"]
    assert strayed["error"]["code"] == ErrorCode.INVALID_PARAMS
