"""R10: an attacker with the panel's credentials against the shipped broker configuration."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import nats.errors
import pytest
from nats.js.api import RePublish, StreamSource

from tests.support.roles import TURNS_INBOX_PREFIX, connected, running_broker_with_roles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.support.roles import Role, Roles

pytestmark = pytest.mark.broker

STREAM = "vystak-default-streams"
TASKS = "vystak.default.agents.demo.tasks"
TURN = "vystak.default.streams.c1.t1"
AGREED: dict[str, Any] = {
    "name": STREAM,
    "subjects": ["vystak.default.streams.>"],
    "max_age": 3600,
}
FORGED = json.dumps({"seq": 3, "event": {"type": "vystak.turn.rewind", "to_seq": -1}}).encode()
# The same two users with the same rights in one account: what the accounts are there to prevent.
ONE_ACCOUNT = """
authorization {
  users = [
    {user: turns, password: $VYSTAK_NATS_TURNS_PASSWORD, permissions: {
      publish: {allow: ["vystak.*.streams.*.*", "_INBOX.>", "$JS.API.>"]}
      subscribe: {allow: ["vystak.*.agents.*.tasks", "_INBOX_turns.>"]}}}
    {user: panel, password: $VYSTAK_NATS_PANEL_PASSWORD, permissions: {
      publish: {allow: ["vystak.*.agents.*.tasks", "$JS.API.STREAM.INFO.*"]}
      subscribe: {allow: ["_INBOX.>"]}}}
  ]
}
"""


@dataclass(frozen=True, slots=True)
class World:
    """A stream with one turn of three messages, turn control and the attacker."""

    turns: Role
    panel: Role

    async def log(self) -> list[tuple[str, bytes]]:
        """Every message of the stream, once all that the attacker sent was dealt with."""
        await self.panel.client.flush()
        await self.panel.js.stream_info(STREAM)
        await self.turns.client.flush()
        state = (await self.turns.js.stream_info(STREAM)).state
        messages = [
            await self.turns.js.get_msg(STREAM, seq)
            for seq in range(state.first_seq, state.last_seq + 1)
        ]
        return [(message.subject or "", message.data or b"") for message in messages]

    async def forged_reply_subject(self, subject: str, reply: str) -> None:
        await self.panel.client.publish(subject, b"", reply=reply)

    async def create_consumer(self, name: str, **config: Any) -> dict[str, Any]:
        """The API's answer, without what nats-py would forbid before sending."""
        wanted = {
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "all",
            "inactive_threshold": 60_000_000_000,
            **config,
        }
        body = json.dumps({"stream_name": STREAM, "action": "", "config": wanted}).encode()
        subject = f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}"
        return json.loads((await self.panel.client.request(subject, body, timeout=5)).data)


@pytest.fixture
async def world(roles: Roles) -> AsyncIterator[World]:
    async with (
        connected(roles.turns_url, inbox_prefix=TURNS_INBOX_PREFIX) as turns,
        connected(roles.panel_url) as panel,
    ):
        await fill(turns)
        yield World(turns, panel)


async def fill(turns: Role) -> None:
    """What turn control does before the attack: stream, three messages, answering requests."""
    await turns.js.add_stream(**AGREED)
    for seq in range(3):
        await turns.js.publish(TURN, message(seq), headers={"Nats-Msg-Id": f"t1-{seq}"})

    async def answer(request: Msg) -> None:
        await request.respond(b'{"jsonrpc":"2.0","id":1,"result":{}}')

    await turns.client.subscribe(TASKS, queue="agents.demo", cb=answer)
    await turns.client.flush()


def message(seq: int) -> bytes:
    return json.dumps({"seq": seq, "event": {"type": "response.output_text.delta"}}).encode()


HONEST_LOG = [(TURN, message(seq)) for seq in range(3)]


async def test_a_forged_rewind_is_refused_and_the_log_unchanged(world: World) -> None:
    await world.panel.client.publish(TURN, FORGED)

    assert await world.log() == HONEST_LOG
    assert len(world.panel.violations) == 1
    assert TURN in world.panel.violations[0]


async def test_turn_control_appends_with_an_expectation_after_an_attack(world: World) -> None:
    await world.panel.client.publish(TURN, FORGED)
    await world.forged_reply_subject(TASKS, TURN)

    ack = await world.turns.js.publish(
        TURN, message(3), headers={"Nats-Expected-Last-Subject-Sequence": "3"}
    )

    assert ack.seq == 4
    assert world.turns.violations == []


@pytest.mark.parametrize(
    "asked", [TASKS, f"$JS.API.STREAM.INFO.{STREAM}", "$JS.API.INFO", "$JS.API.STREAM.NAMES"]
)
async def test_an_answer_to_a_turn_subject_as_reply_subject_is_not_stored(
    world: World, asked: str
) -> None:
    await world.forged_reply_subject(asked, TURN)

    assert await world.log() == HONEST_LOG


@pytest.mark.parametrize("asked", [TASKS, f"$JS.API.STREAM.INFO.{STREAM}"])
async def test_in_one_account_the_same_answer_would_be_stored(tmp_path: Path, asked: str) -> None:
    config = tmp_path / "one-account.conf"
    config.write_text(ONE_ACCOUNT)
    async with (
        running_broker_with_roles(tmp_path / "nats", config) as roles,
        connected(roles.turns_url, inbox_prefix=TURNS_INBOX_PREFIX) as turns,
        connected(roles.panel_url) as panel,
    ):
        await fill(turns)
        stored = await turns.client.request(f"$JS.API.STREAM.INFO.{STREAM}")
        assert json.loads(stored.data)["state"]["messages"] == 3

        await panel.client.publish(asked, b"", reply="vystak.default.streams.c1.forged")

        log = await World(turns, panel).log()
        assert [subject for subject, _ in log[3:]] == ["vystak.default.streams.c1.forged"]


@pytest.mark.parametrize("headers_only", [False, True])
@pytest.mark.parametrize(
    "reply", [TURN, "vystak.default.streams.c1.t2", f"$JS.API.STREAM.PURGE.{STREAM}"]
)
async def test_pulled_messages_cannot_be_sent_to_a_turn_or_to_the_api(
    world: World, reply: str, headers_only: bool
) -> None:
    assert "error" not in await world.create_consumer("pull", headers_only=headers_only)

    await world.forged_reply_subject(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.pull", reply)

    assert await world.log() == HONEST_LOG


async def test_an_acknowledgement_that_asks_for_the_next_message_cannot_store_it(
    world: World,
) -> None:
    await world.create_consumer("pull", ack_policy="explicit")
    subscription = await world.panel.js.pull_subscribe_bind("pull", stream=STREAM)
    (pulled,) = await subscription.fetch(1, timeout=5)

    await world.panel.client.publish(pulled.reply, b"+NXT", reply=TURN)

    assert await world.log() == HONEST_LOG


async def test_a_consumer_cannot_deliver_to_a_turn_subject(world: World) -> None:
    answer = await world.create_consumer("push", deliver_subject="vystak.default.streams.c1.t2")

    assert answer["error"]["err_code"] == 10081
    assert await world.log() == HONEST_LOG


@pytest.mark.parametrize("headers_only", [False, True])
@pytest.mark.parametrize("call", ["PURGE", "DELETE", "UPDATE"])
async def test_a_consumer_that_delivers_to_the_api_changes_nothing(
    world: World, call: str, headers_only: bool
) -> None:
    await world.create_consumer(
        "push", deliver_subject=f"$JS.API.STREAM.{call}.{STREAM}", headers_only=headers_only
    )

    assert await world.log() == HONEST_LOG
    assert (await world.turns.js.stream_info(STREAM)).config.max_age == 3600


async def test_a_consumer_cannot_forge_an_acknowledgement_in_a_guessable_inbox(
    world: World,
) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await watch(world.panel, f"{TURNS_INBOX_PREFIX}.>")

    assert any(TURNS_INBOX_PREFIX.lower() in line for line in world.panel.violations)


@pytest.mark.parametrize("subject", [">", "$JS.>", "_R_.>", TASKS, "vystak.default.streams.>"])
async def test_the_panel_cannot_listen_outside_its_inbox(world: World, subject: str) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await watch(world.panel, subject)

    assert any(subject.lower() in line for line in world.panel.violations)


async def watch(role: Role, subject: str) -> None:
    """Raise TimeoutError when nothing is heard although everyone speaks."""
    subscription = await role.client.subscribe(subject)
    await role.client.flush()
    await role.client.request(TASKS, b"", timeout=5)
    await role.js.stream_info(STREAM)
    await subscription.next_msg(timeout=0.2)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(f"STREAM.UPDATE.{STREAM}", id="update the stream"),
        pytest.param(f"STREAM.PURGE.{STREAM}", id="purge the stream"),
        pytest.param(f"STREAM.DELETE.{STREAM}", id="delete the stream"),
        pytest.param(f"STREAM.MSG.DELETE.{STREAM}", id="delete a message"),
        pytest.param(f"STREAM.SNAPSHOT.{STREAM}", id="snapshot the stream"),
        pytest.param(f"STREAM.RESTORE.{STREAM}", id="restore over the stream"),
        pytest.param(f"STREAM.LEADER.STEPDOWN.{STREAM}", id="move its leader"),
        pytest.param("STREAM.CREATE.evil", id="create another stream"),
        pytest.param(f"CONSUMER.DURABLE.CREATE.{STREAM}.x", id="the older way to a consumer"),
        pytest.param("CONSUMER.CREATE.other", id="read another stream"),
    ],
)
async def test_a_call_that_changes_streams_is_refused(world: World, harm: str) -> None:
    subject = f"$JS.API.{harm}"

    # Beside the refusal there is nobody in the panel's account who would answer.
    with pytest.raises((nats.errors.TimeoutError, nats.errors.NoRespondersError)):
        await world.panel.client.request(subject, json.dumps(wire(**AGREED)).encode(), timeout=0.2)

    assert any(subject.lower() in line for line in world.panel.violations)
    assert await world.log() == HONEST_LOG


def wire(**config: Any) -> dict[str, Any]:
    return {"retention": "limits", "storage": "file", "num_replicas": 1, **config}


@pytest.mark.parametrize(
    "poison",
    [
        pytest.param({"republish": RePublish(src=">", dest="elsewhere.>")}, id="republish"),
        pytest.param({"sources": [StreamSource(name="evil")]}, id="sources"),
        pytest.param({"subjects": ["vystak.default.>"]}, id="wider subjects"),
        pytest.param({"max_msgs_per_subject": 1}, id="forgetting"),
        pytest.param({"max_age": 1}, id="another age"),
    ],
)
async def test_creating_the_stream_otherwise_leaves_it_as_it_is(
    world: World, poison: dict[str, Any]
) -> None:
    before = (await world.turns.js.stream_info(STREAM)).config

    with pytest.raises(nats.js.errors.BadRequestError):
        await world.panel.js.add_stream(**{**AGREED, **poison})

    assert (await world.turns.js.stream_info(STREAM)).config == before
    assert await world.log() == HONEST_LOG


async def test_no_second_stream_fits_into_the_account(roles: Roles) -> None:
    """Not even turn control, were it taken over, can make one that feeds the turns' stream."""
    async with connected(roles.turns_url, inbox_prefix=TURNS_INBOX_PREFIX) as turns:
        await turns.js.add_stream(**AGREED)
        with pytest.raises(nats.errors.TimeoutError):
            await turns.js.add_stream(name="evil", subjects=["evil"])
        assert "stream.create.evil" in turns.violations[0]


@pytest.mark.parametrize("call", ["UPDATE", "PURGE", "DELETE", "MSG.DELETE"])
async def test_turn_control_itself_cannot_change_the_stream(world: World, call: str) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await world.turns.client.request(f"$JS.API.STREAM.{call}.{STREAM}", b"", timeout=0.2)

    assert await world.log() == HONEST_LOG


async def test_nobody_gets_in_without_credentials(roles: Roles) -> None:
    """Spoken by hand: nats-py leaves its socket open when a first connection is refused."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", roles.server.port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')

        assert (await reader.readline()).startswith(b"-ERR 'Authorization Violation'")
        writer.close()
        await writer.wait_closed()
