"""What the first and the last message of a subject say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.turnlog.places import BASE, SUBJECT, a_message
from vystak_turns.core.findings import Asked, Content, Rewound, Tail, Terminal
from vystak_turns.core.turn import Failure
from vystak_turns_rpc.vocabulary import FailureCode

if TYPE_CHECKING:
    from tests.integration.turnlog.places import Place

pytestmark = pytest.mark.broker

NO_REASON = "The agent gave no reason."


def body(event: str, seq: int = 4) -> bytes:
    return f'{{"seq":{seq},"event":{event}}}'.encode()


FAILED = '{"type":"response.failed","response":%s}'
ASKED = '{"type":"vystak.approval.requested","payload":null%s}'


@pytest.mark.parametrize(
    ("event", "what"),
    [
        ('{"type":"response.completed","response":{}}', Terminal(None)),
        (FAILED % '{"error":{"message":"m","code":"c"}}', Terminal(Failure("c", "m"))),
        (
            FAILED % '{"error":{"message":"m"}}',
            Terminal(Failure(FailureCode.GRAPH_ERROR, "m")),
        ),
        (FAILED % "[]", Terminal(Failure(FailureCode.GRAPH_ERROR, NO_REASON))),
        (FAILED % '{"error":"m"}', Terminal(Failure(FailureCode.GRAPH_ERROR, NO_REASON))),
        ('{"type":"vystak.turn.rewind","to_seq":-1}', Rewound(-1)),
        ('{"type":"vystak.turn.rewind","to_seq":"x"}', Content()),
        (ASKED % ',"park_generation":2,"interrupt_id":"i"', Asked(2, "i")),
        (ASKED % "", Asked(None, None)),
        ('{"type":"response.output_text.delta","delta":"x"}', Content()),
        ('{"type":7}', Content()),
        ("{}", Content()),
    ],
)
async def test_the_last_event_is_understood(
    place: Place, event: str, what: Terminal | Rewound | Asked | Content
) -> None:
    last = await place.log.append(a_message(body(event)))

    assert await place.log.tail(SUBJECT) == Tail(last, 4, 5, "t1:0:5", what)


@pytest.mark.parametrize("rubbish", [b"", b"rubbish", b"[]", b'{"seq":-1,"event":{}}', b"\xff"])
async def test_a_last_message_that_is_not_ours_has_no_seq(place: Place, rubbish: bytes) -> None:
    await place.put(rubbish)

    assert await place.log.tail(SUBJECT) == Tail(1, None, None, None, Content())
    assert await place.log.head_seq(SUBJECT) is None


async def test_a_message_of_the_original_has_a_seq_and_neither_token_nor_id(place: Place) -> None:
    await place.put(body('{"type":"x"}', seq=9))

    assert await place.log.tail(SUBJECT) == Tail(1, 9, None, None, Content())


async def test_a_token_that_is_no_number_is_none(place: Place) -> None:
    await place.client.jetstream().publish(
        SUBJECT, body("{}"), headers={"Vystak-Token": "x1", "Nats-Msg-Id": "m: 1"}
    )

    assert await place.log.tail(SUBJECT) == Tail(1, 4, None, "m: 1", Content())


async def test_the_head_is_the_first_of_our_messages_on_this_very_subject(place: Place) -> None:
    await place.put(body("{}", seq=1), subject=f"{BASE}.streams.c1.other")
    await place.put(b"rubbish")
    await place.put(body("{}", seq=7))
    await place.put(body("{}", seq=8))

    assert await place.log.head_seq(SUBJECT) == 7


async def test_the_head_moves_when_old_messages_are_gone(place: Place) -> None:
    for seq in range(3):
        await place.put(body("{}", seq=seq))
    assert await place.log.head_seq(SUBJECT) == 0

    await place.ask(f"STREAM.PURGE.{place.settings.name}", {"filter": SUBJECT, "keep": 1})

    assert await place.log.head_seq(SUBJECT) == 2


async def test_the_search_for_a_head_among_rubbish_has_an_end(place: Place) -> None:
    for _ in range(101):
        await place.client.publish(SUBJECT, b"rubbish")
    await place.put(body("{}", seq=7))

    assert await place.log.head_seq(SUBJECT) is None
