"""The demo's verdict: it says "kept" of a good turn, and finds what is wrong with a bad one."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.distributions import ROOT
from vystak_turns_client.reader import LoggedMessage
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import WireStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

LABELS = ["one", "two", "three", "four"]
DONE = TurnStatusResult(status=WireStatus.DONE, attempts=0, thread_id="resp_1")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "docker-panel-durable"))
    yield importlib.import_module("demo")
    for name in ("demo", "screen"):
        sys.modules.pop(name, None)


def step(label: str) -> list[dict[str, Any]]:
    call_id = f"call_{label}"
    call = {"type": "function_call", "call_id": call_id, "name": "slow_step"}
    output = {"type": "function_call_output", "call_id": call_id, "output": "done"}
    return [
        {"type": "response.output_item.added", "item": call},
        {
            "type": "response.function_call_arguments.done",
            "call_id": call_id,
            "arguments": json.dumps({"label": label}),
        },
        {"type": "response.output_item.added", "item": output},
    ]


STEPS = [event for label in LABELS for event in step(label)]
REWIND = {"type": "vystak.turn.rewind", "to_seq": 2}
REPLY = {"type": "response.output_text.delta", "item_id": "m1", "delta": "All done."}
SECOND_REPLY = REPLY | {"item_id": "m2"}
COMPLETED = {"type": "response.completed", "response": {}}
AFTER_A_KILL = [*STEPS[:6], REWIND, *STEPS[3:], REPLY, COMPLETED]


def log_of(events: list[dict[str, Any]]) -> list[LoggedMessage]:
    return [LoggedMessage(seq, event, seq + 1) for seq, event in enumerate(events)]


def faults(demo: ModuleType, blow: int, events: list[dict[str, Any]], **others: Any) -> set[str]:
    given = {"completed": LABELS, "status": DONE, "attempts": 0} | others
    verdict = demo.judge(
        demo.BLOWS[blow],
        log_of(events),
        given["completed"],
        given["status"],
        given["attempts"],
        0.1,
    )
    return set(verdict.faults)


@pytest.mark.parametrize("blow", [0, 1, 2])
def test_a_turn_as_promised_has_no_faults(demo: ModuleType, blow: int) -> None:
    assert faults(demo, blow, AFTER_A_KILL) == set()


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([*STEPS[:9], REPLY, COMPLETED], "each step is shown once, with its result"),
        ([*STEPS, REPLY, SECOND_REPLY, COMPLETED], "there is one reply"),
        ([*STEPS, COMPLETED], "there is one reply"),
        ([*STEPS, REPLY], "the log ends with its one terminal event"),
        ([*STEPS, REPLY, COMPLETED, COMPLETED], "the log ends with its one terminal event"),
        ([*STEPS, REPLY, COMPLETED], "readers are told where a re-driven step begins"),
    ],
)
def test_a_wrong_log_is_found(demo: ModuleType, events: list[dict[str, Any]], fault: str) -> None:
    assert fault in faults(demo, 0, events)


@pytest.mark.parametrize(
    ("blow", "others", "fault"),
    [
        (0, {"completed": [*LABELS, "two"]}, "no finished step ran again"),
        (1, {"completed": [*LABELS, "three"]}, "no finished step ran again"),
        (2, {"attempts": 1}, "an orderly stop costs no attempt"),
        (0, {"completed": LABELS[:3]}, "every step was carried out"),
        (0, {"status": TurnStatusResult(status=WireStatus.FAILED)}, "the status is done"),
    ],
)
def test_what_readers_cannot_see_is_found_too(
    demo: ModuleType, blow: int, others: dict[str, Any], fault: str
) -> None:
    assert faults(demo, blow, AFTER_A_KILL, **others) == {fault}
