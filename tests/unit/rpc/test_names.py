from __future__ import annotations

from typing import Any

import pytest

from vystak_turns_rpc import subjects
from vystak_turns_rpc.stream import StreamSettings, differences, stream_settings
from vystak_turns_rpc.subjects import CanonicalName, TurnSubject
from vystak_turns_rpc.vocabulary import (
    ENDED,
    TurnState,
    WireStatus,
    is_safe_token,
    is_thread_id,
    wire_status,
)

CONVERSATION = "0123456789abcdef0123456789abcdef"


def test_every_state_has_a_wire_word() -> None:
    words = {state: wire_status(state).value for state in TurnState}
    assert words == {
        TurnState.QUEUED: "running",
        TurnState.RUNNING: "running",
        TurnState.PROBING: "running",
        TurnState.PARKED: "parked",
        TurnState.CANCELLING: "running",
        TurnState.COMPLETED: "done",
        TurnState.FAILED: "failed",
        TurnState.CANCELLED: "failed",
    }
    assert wire_status(None) is WireStatus.UNKNOWN


def test_ended_states_are_those_whose_status_is_final() -> None:
    final = {state for state in TurnState if wire_status(state) in {"done", "failed"}}
    assert final == ENDED


@pytest.mark.parametrize("text", ["a", "A-z_9", "a" * 128, CONVERSATION])
def test_safe_tokens_are_accepted(text: str) -> None:
    assert is_safe_token(text)


@pytest.mark.parametrize("text", ["", "a" * 129, "a.b", "*", ">", "a b", "a\n", "é", "a/b", "\x00"])
def test_unsafe_tokens_are_not(text: str) -> None:
    assert not is_safe_token(text)


def test_thread_ids_are_printable_ascii() -> None:
    assert is_thread_id("resp_" + "a" * 24)
    assert is_thread_id("any/thing:~")
    for text in ("", "a b", "a\n", "é", "a" * 257, "\x7f"):
        assert not is_thread_id(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Worker", "worker"),
        ("my_agent", "my-agent"),
        ("a. _b", "a-b"),
        ("-x-", "x"),
        ("Käse 1", "kse-1"),
        ("a" * 80, "a" * 63),
    ],
)
def test_a_name_becomes_one_token(text: str, expected: str) -> None:
    assert subjects.slug(text) == expected


@pytest.mark.parametrize("text", ["", "---", "é", "  "])
def test_a_name_without_any_sign_left_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        subjects.slug(text)


def test_the_subjects_of_an_agent_have_the_contract_form() -> None:
    tasks = subjects.tasks_subject("vystak", "Multi Team", "my_agent")
    assert tasks == "vystak.multi-team.agents.my-agent.tasks"
    assert subjects.queue_group("my_agent") == "agents.my-agent"
    base = subjects.turn_base(tasks)
    assert base == "vystak.multi-team"
    assert subjects.stream_name(base) == "vystak-multi-team-streams"
    assert subjects.turn_subject(base, CONVERSATION, "t1") == f"{base}.streams.{CONVERSATION}.t1"


@pytest.mark.parametrize("prefix", ["", "a b", "a.*", ">", "a..b", "a\n"])
def test_a_prefix_that_is_no_subject_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError):
        subjects.tasks_subject(prefix, "default", "a")


@pytest.mark.parametrize("subject", ["vystak.default.tasks", "", ".agents.x", "a.*.agents.x"])
def test_a_subject_without_an_agent_has_no_base(subject: str) -> None:
    with pytest.raises(ValueError):
        subjects.turn_base(subject)


def test_the_base_ends_before_the_first_agents() -> None:
    assert subjects.turn_base("a.agents.b.agents.c.tasks") == "a"


def test_a_turn_subject_is_taken_apart() -> None:
    subject = f"vystak.default.streams.{CONVERSATION}.t1"
    assert subjects.parse_turn_subject("vystak.default", subject) == TurnSubject(CONVERSATION, "t1")
    assert subjects.base_of_turn_subject(subject) == "vystak.default"


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "vystak.default.streams.c",
        "vystak.default.streams.c.t.x",
        "vystak.default.streams.c.",
        "vystak.default.streams..t",
        "vystak.default.streams.*.t",
        "vystak.default.streams.c.>",
        "vystak.default.streams.c.t ",
        "vystak.other.streams.c.t",
        "vystak.default.agents.c.t",
        "vystak.default",
        "c.t",
        "x.vystak.default.streams.c.t",
    ],
)
def test_any_other_subject_is_no_turn_of_this_base(subject: str) -> None:
    with pytest.raises(ValueError):
        subjects.parse_turn_subject("vystak.default", subject)


def test_an_unsafe_id_makes_no_turn_subject() -> None:
    with pytest.raises(ValueError, match="letters"):
        subjects.turn_subject("b", "a.b", "t")


def test_canonical_names_have_three_parts() -> None:
    assert subjects.parse_canonical("w.agents.default") == CanonicalName("w", "agents", "default")
    for text in ("w", "w.agents", "w.robots.default", "w.agents.", "a.agents.b.c"):
        with pytest.raises(ValueError):
            subjects.parse_canonical(text)


def config(**changes: Any) -> dict[str, Any]:
    own = {
        "name": "vystak-default-streams",
        "subjects": ["vystak.default.streams.>"],
        "storage": "file",
        "retention": "limits",
        "max_age": 3_600_000_000_000,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "num_replicas": 1,
    }
    return own | changes


def test_the_settings_of_a_base_are_the_contract_ones() -> None:
    assert stream_settings("vystak.default") == StreamSettings(
        "vystak-default-streams", "vystak.default.streams.>", 3600, "file", "limits"
    )


def test_a_stream_with_our_settings_is_ours_whatever_its_replicas() -> None:
    assert differences(stream_settings("vystak.default"), config(num_replicas=3)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"max_age": 60_000_000_000},
        {"subjects": ["vystak.default.>"]},
        {"subjects": ["vystak.default.streams.>", "more"]},
        {"storage": "memory"},
        {"retention": "workqueue"},
        {"max_msgs_per_subject": 1},
        {"max_bytes": 1024},
        {"sealed": True},
        {"sources": [{"name": "x"}]},
        {"no_ack": True},
    ],
)
def test_a_foreign_stream_is_described(changes: dict[str, Any]) -> None:
    found = differences(stream_settings("vystak.default"), config(**changes))
    assert len(found) == 1
    assert next(iter(changes)) in found[0]
