from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import nats
import pytest
from nats.js.errors import NotFoundError
from structlog.testing import capture_logs

from tests.support.nats_server import NatsServer
from tests.support.roles import running_broker_with_roles
from tests.support.running_service import STREAM, asked, running_service
from tests.support.waiting import ticks

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.running_service import RunningService

pytestmark = pytest.mark.broker

SUBSCRIPTION = "subscription shop"
STATUS = json.dumps(
    {"jsonrpc": "2.0", "id": 7, "method": "responses/turnStatus", "params": {"turn_id": "t"}}
).encode()


async def test_a_service_with_everything_is_ready_though_its_agent_is_absent(
    service: RunningService,
) -> None:
    await service.until("agent shop", "absent")
    code, parts = await service.readiness()

    assert code == 200
    assert {name: part["state"] for name, part in parts.items()} == {
        "broker": "connected",
        SUBSCRIPTION: "on",
        f"stream {STREAM}": "created",
        "journal": "open",
        "agent shop": "absent",
    }
    assert not parts["agent shop"]["needed"]


async def test_without_a_broker_it_lives_and_says_what_is_missing(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    await server.stop()

    async with running_service(tmp_path, server.url) as service:
        journal = await service.until("journal", "open")
        code, parts = await service.readiness()

        assert (await service.http.get("/healthz")).status_code == 200
        assert code == 503
        assert journal["ready"]
        assert parts["broker"]["state"] == "connecting"
        assert parts[SUBSCRIPTION]["state"] == "waiting"
        assert not parts[f"stream {STREAM}"]["ready"]

        await server.start()
        await service.until_ready()
        await server.stop()


async def test_a_broker_that_is_killed_is_found_again(
    service: RunningService, nats_server: NatsServer
) -> None:
    await nats_server.kill()
    await service.until("broker", "connecting")
    assert (await service.readiness())[1][SUBSCRIPTION]["state"] == "waiting"

    await nats_server.start()
    await service.until_ready()

    client = await nats.connect(nats_server.url)
    assert b'"unknown"' in await asked(client, STATUS)
    await client.close()


async def test_no_error_of_the_broker_ends_the_connection_for_good(
    service: RunningService, nc: Client
) -> None:
    """nats-py closes for ever on errors such as this one; what it was asked for must survive."""
    broker = service.service._broker
    lost = asyncio.create_task(broker.wait_lost())

    await broker.client._process_err("'slow consumer'")
    await asyncio.wait_for(lost, 10)
    await service.until_ready()

    assert b'"unknown"' in await asked(nc, STATUS)
    assert not broker.ended.is_set()


async def test_a_stream_with_other_settings_is_reported_and_left_alone(
    tmp_path: Path, nats_server: NatsServer, nc: Client
) -> None:
    await nc.jetstream().add_stream(name=STREAM, subjects=["vystak.default.streams.>"], max_age=60)

    async with running_service(tmp_path, nats_server.url) as service:
        part = await service.until(f"stream {STREAM}", "foreign")

    assert part["ready"]
    assert "max_age" in part["words"]
    assert (await nc.jetstream().stream_info(STREAM)).config.max_age == 60


async def test_credentials_that_may_not_serve_are_told_loudly(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with running_broker_with_roles(tmp_path / "nats") as roles:
            creds = tmp_path / "panel.creds"
            creds.write_text(f"panel:{roles.panel_password}\n")
            wrong = {"nats_creds": creds, "nats_inbox_prefix": "_INBOX", "broker_answer_s": 0.5}
            async with running_service(tmp_path, roles.server.url, **wrong) as service:
                await service.until(SUBSCRIPTION, "refused")
                code, parts = await service.readiness()

    assert code == 503
    assert parts["broker"]["state"] == "refused"
    assert "vystak.default.agents.shop.tasks" in parts["broker"]["words"]
    assert any(line["log_level"] == "error" and "refuses" in line["event"] for line in lines)


async def test_a_wrong_password_is_told_without_showing_it(tmp_path: Path) -> None:
    async with running_broker_with_roles(tmp_path / "nats") as roles:
        url = roles.server.url_as("turns", "wrong-secret")
        with capture_logs() as lines:
            async with running_service(tmp_path, url) as service:
                words = await refusal(service)

    assert "wrong-secret" not in words
    assert sum("trouble with the broker" in line["event"] for line in lines) <= 3


async def refusal(service: RunningService) -> str:
    async for _ in ticks("the broker has refused us"):
        part = (await service.readiness())[1]["broker"]
        if "authorization" in part["words"].lower():
            assert not part["ready"]
            return str(part["words"])
    raise AssertionError


async def test_the_role_turns_is_all_that_is_needed(tmp_path: Path) -> None:
    async with running_broker_with_roles(tmp_path / "nats") as roles:
        creds = tmp_path / "turns.creds"
        creds.write_text(f"turns:{roles.turns_password}\n")
        async with running_service(tmp_path, roles.server.url, nats_creds=creds) as service:
            await service.until_ready()
            panel = await nats.connect(roles.panel_url)

            assert b'"unknown"' in await asked(panel, STATUS)

            await panel.close()


async def test_a_second_process_waits_for_the_journal_and_takes_no_requests(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with running_service(tmp_path, nats_server.url) as first:
        await first.until_ready()
        async with running_service(tmp_path, nats_server.url) as second:
            part = (await second.readiness())[1]["journal"]
            answer = await second.http.post("/rpc", content=STATUS)

    assert part["state"] == "waiting"
    assert "another process owns the journal" in part["words"]
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


async def test_a_waiting_process_takes_over_when_the_first_one_ends(
    tmp_path: Path, nats_server: NatsServer, nc: Client
) -> None:
    async with AsyncExitStack() as later:
        async with running_service(tmp_path, nats_server.url) as first:
            await first.until_ready()
            second = await later.enter_async_context(running_service(tmp_path, nats_server.url))
        await second.until_ready()

        assert b'"unknown"' in await asked(nc, STATUS)


async def test_a_broker_that_comes_back_empty_gets_its_stream_again(tmp_path: Path) -> None:
    first = NatsServer(tmp_path / "first")
    await first.start()
    async with running_service(tmp_path, first.url) as service:
        await service.until_ready()
        await first.kill()
        second = NatsServer(tmp_path / "second", port=first.port)
        await second.start()
        client = await nats.connect(second.url)

        async for _ in ticks("the stream is there again"):
            with contextlib.suppress(NotFoundError):
                await client.jetstream().stream_info(STREAM)
                break

        await client.close()
    await second.stop()
