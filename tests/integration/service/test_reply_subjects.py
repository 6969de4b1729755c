"""R10 and R11: nobody can have our answer stored in a turn's log by naming it as reply subject."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import nats
import pytest

from tests.support.running_service import BASE, STREAM, TASKS, asked, journaled, running_service
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.broker

VICTIM = f"{BASE}.streams.c1.victim"


def status(turn_id: str) -> bytes:
    params = {"turn_id": turn_id}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "responses/turnStatus", "params": params}
    ).encode()


def create(turn_id: str) -> bytes:
    params = {
        "turn_id": turn_id,
        "stream_subject": f"{BASE}.streams.c1.{turn_id}",
        "request": {"input": "hello"},
    }
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "responses/createDetached", "params": params}
    ).encode()


async def status_of(nc: Client, turn_id: str) -> str:
    reply = json.loads(await asked(nc, status(turn_id)))
    return str(reply["result"]["status"])


@asynccontextmanager
async def attacked(folder: Path, nats_server: NatsServer) -> AsyncIterator[Client]:
    """A client for the attack; at the end everything that was accepted has been carried out."""
    client = await nats.connect(nats_server.url)
    async with running_service(folder, nats_server.url) as service:
        await service.until_ready()
        yield client
        # Answered, so the broker has handed over what was sent before.
        assert await status_of(client, "other") == "unknown"
    await client.close()


async def messages(nats_server: NatsServer) -> int:
    client = await nats.connect(nats_server.url)
    try:
        return (await client.jetstream().stream_info(STREAM)).state.messages
    finally:
        await client.close()


@pytest.mark.parametrize("payload", [status("victim"), create("t1"), b"rubbish"])
async def test_an_answer_is_never_published_on_a_turn_subject(
    tmp_path: Path, nats_server: NatsServer, payload: bytes
) -> None:
    async with attacked(tmp_path, nats_server) as client:
        await client.publish(TASKS, payload, reply=VICTIM)

    assert await messages(nats_server) == 0


@pytest.mark.parametrize(
    "reply", [VICTIM, TASKS, "$JS.API.STREAM.PURGE.vystak-default-streams", "_INBOX_turns.x", "x"]
)
async def test_a_request_with_a_reply_subject_that_is_no_inbox_is_not_carried_out(
    tmp_path: Path, nats_server: NatsServer, reply: str
) -> None:
    async with attacked(tmp_path, nats_server) as client:
        await client.publish(TASKS, create("t1"), reply=reply)

    assert journaled(tmp_path / "turns.db") == []


async def test_a_request_without_a_reply_subject_is_carried_out(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with attacked(tmp_path, nats_server) as client:
        await client.publish(TASKS, create("t1"))

    assert journaled(tmp_path / "turns.db") == ["t1"]


@pytest.mark.parametrize("payload", [status("t1"), create("t1"), b"rubbish"])
async def test_a_request_without_a_reply_subject_gets_no_answer_of_any_kind(
    tmp_path: Path, nats_server: NatsServer, payload: bytes
) -> None:
    seen: list[str] = []
    watcher = await nats.connect(nats_server.url)
    async with attacked(tmp_path, nats_server) as client:
        await client.flush()

        async def note(message: Msg) -> None:
            seen.append(message.subject)

        for subject in (TASKS, f"{BASE}.streams.>", "_INBOX.>"):
            await watcher.subscribe(subject, cb=note)
        # A flush may overtake what is subscribed to before it; a message does not.
        await watcher.publish("_INBOX.watching")
        await until(lambda: seen == ["_INBOX.watching"], "the watcher sees")
        seen.clear()
        await client.publish(TASKS, payload)
        await client.flush()
        # The answers to this one and to its like come after whatever the first brought about.
        assert await status_of(client, "other") == "unknown"
        await until(lambda: len(seen) >= 3, "two requests and the answer to the second are seen")
        requests = [subject for subject in seen if subject == TASKS]
        answers = [subject for subject in seen if subject.startswith("_INBOX.")]

    await watcher.close()
    assert (len(requests), len(answers)) == (2, 1), "the one answer is that of the second request"
    assert not [subject for subject in seen if ".streams." in subject]
