"""The load test's own judgement: what it must not let pass."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.distributions import ROOT
from vystak_turns_client.retained import LoggedMessage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPLETED = {"type": "response.completed", "response": {"id": "r"}}


@pytest.fixture(params=["transcripts"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "load"))
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "docker-panel-durable"))
    yield importlib.import_module(request.param)
    sys.modules.pop(request.param, None)


def step(label: str) -> list[dict[str, Any]]:
    call = {"type": "function_call", "id": label, "call_id": label, "name": "slow_step"}
    output = {"type": "function_call_output", "call_id": label, "output": f"step {label} is done"}
    return [
        said(f"I start step {label} now. ", label),
        {"type": "response.output_item.added", "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.done", "call_id": label, "arguments": "{}"},
        {"type": "response.output_item.added", "item": output},
    ]


def said(words: str, item_id: str) -> dict[str, Any]:
    fields = {"item_id": item_id, "output_index": 0, "content_index": 0}
    return {"type": "response.output_text.delta", "delta": words, **fields}


def whole() -> list[dict[str, Any]]:
    steps = [event for label in ("one", "two", "three", "four") for event in step(label)]
    return [*steps, said("All four steps are done.", "last"), COMPLETED]


def numbered(events: list[dict[str, Any]]) -> list[LoggedMessage]:
    return [LoggedMessage(seq, event, seq + 1) for seq, event in enumerate(events)]


def test_a_whole_turn_passes(module: ModuleType) -> None:
    module.check(numbered(whole()), module.FOUR_STEPS)


def test_the_expected_words_are_those_of_the_examples_script(module: ModuleType) -> None:
    script = importlib.import_module("script")
    sys.modules.pop("script")

    assert script.LABELS == module.LABELS
    assert ", ".join(script.OLD_FILES) in module.DELETED.words


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda events: events[:-1], "terminal events at"),
        (lambda events: [*events, COMPLETED], "terminal events at"),
        (lambda events: [*events[:4], *events], "the transcript is"),
        (lambda events: [*events[:3], *events[4:]], "the transcript is"),
        (lambda events: [*events[:-2], COMPLETED], "the transcript is"),
        (lambda events: [*events[:-1], {**COMPLETED, "type": "response.failed"}], "ended as"),
    ],
)
def test_a_turn_that_shows_something_else_fails(module: ModuleType, spoil: Any, words: str) -> None:
    with pytest.raises(module.WrongTurnError, match=words):
        module.check(numbered(spoil(whole())), module.FOUR_STEPS)


def test_a_gap_in_the_sequence_fails(module: ModuleType) -> None:
    log = numbered(whole())

    with pytest.raises(module.WrongTurnError, match="sequence numbers"):
        module.check([*log[:2], *log[3:]], module.FOUR_STEPS)


@pytest.mark.parametrize("module", ["run"], indirect=True)
def test_the_statistics_become_a_table(module: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "seen_stats.csv"
    file.write_text(
        "Type,Name,Request Count,Failure Count,Requests/s,50%,95%,99%,100%\n"
        "POST,responses/turnStatus,60,1,4.61,10,48,53,1234.5\n"
    )

    last = module.markdown(file).splitlines()[-1]

    assert last == "| HTTP | responses/turnStatus | 60 | 1 | 4.6 | 10 | 48 | 53 | 1234 |"
