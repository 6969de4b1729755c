from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vystak_turns.app.limits import Limits
from vystak_turns.config import Settings, SettingsError, load, variable_of
from vystak_turns.config_files import broker_credentials

TWO = '{"a": "http://h", "b": "http://i"}'
ONE = '{"shop": "http://127.0.0.1:8000"}'


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(variable_of(field), raising=False)


def loaded(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"VYSTAK_{name}", value)
    return load()


def refused(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(monkeypatch, **variables)
    return str(caught.value)


def test_the_defaults_are_those_of_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(monkeypatch, AGENTS=ONE)

    assert settings.nats_url == "nats://127.0.0.1:4222"
    assert (settings.http_host, settings.http_port) == ("127.0.0.1", 8130)
    assert (settings.max_redrive_attempts, settings.stream_max_age_s) == (3, 3600)
    assert settings.limits() == Limits()


def test_an_agent_gets_the_subject_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = loaded(monkeypatch, AGENTS=ONE).agent_places()

    assert place.tasks_subject == "vystak.default.agents.shop.tasks"
    assert place.queue_group == "agents.shop"
    assert place.turn_base == "vystak.default"


def test_prefix_and_namespace_go_into_the_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(
        monkeypatch, AGENTS=ONE, NATS_SUBJECT_PREFIX="acme.prod", NATS_NAMESPACE="Team_A"
    )

    assert settings.agent_places()[0].tasks_subject == "acme.prod.team-a.agents.shop.tasks"


def test_one_agent_may_be_named_by_two_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(
        monkeypatch,
        AGENT_NAME="shop",
        AGENT_URL="http://127.0.0.1:8000/",
        NATS_SUBJECT="x.y.agents.z.tasks",
    )

    (place,) = settings.agent_places()
    assert (place.name, place.url) == ("shop", "http://127.0.0.1:8000")
    assert (place.tasks_subject, place.turn_base) == ("x.y.agents.z.tasks", "x.y")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(
        monkeypatch, AGENTS=ONE, AGENT_NAME="", NATS_URL="", HTTP_PORT="", TURNS_PATH=""
    )

    assert settings.nats_url == "nats://127.0.0.1:4222"
    assert settings.http_port == 8130
    assert settings.turns_path is None


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "VYSTAK_AGENTS: no agent is named"),
        ({"AGENTS": "{"}, "VYSTAK_AGENTS: not JSON"),
        ({"AGENTS": "[]"}, "VYSTAK_AGENTS"),
        ({"AGENTS": '{"a": 1}'}, "VYSTAK_AGENTS['a']"),
        ({"AGENTS": '{"a": "http://h", "a": "http://i"}'}, "twice"),
        ({"AGENTS": '{"a": "127.0.0.1:8000"}'}, "the address of 'a' is wrong"),
        ({"AGENTS": '{"a": "http://h:port"}'}, "the address of 'a' is wrong"),
        ({"AGENTS": '{"!?": "http://h"}'}, "no letter a-z or digit"),
        ({"AGENTS": '{"my agent": "http://h", "my_agent": "http://i"}'}, "would share the subject"),
        ({"AGENTS": ONE, "AGENT_NAME": "b"}, "not both"),
        ({"AGENT_NAME": "a"}, "VYSTAK_AGENT_URL: set it too"),
        ({"AGENT_URL": "http://h"}, "VYSTAK_AGENT_NAME: set it too"),
        (
            {"AGENTS": '{"a": "http://h", "b": "http://i"}', "NATS_SUBJECT": "x.agents.a.tasks"},
            "fits",
        ),
        ({"AGENTS": ONE, "NATS_SUBJECT": "x.y.z"}, "VYSTAK_NATS_SUBJECT"),
        ({"AGENTS": ONE, "NATS_SUBJECT": "x.agents.*.tasks"}, "wildcard"),
        ({"AGENTS": ONE, "NATS_SUBJECT_PREFIX": "x.>"}, "VYSTAK_NATS"),
        ({"AGENTS": ONE, "NATS_URL": "127.0.0.1:4222"}, "VYSTAK_NATS_URL"),
        ({"AGENTS": ONE, "NATS_URL": "nats://a:4222,http://b"}, "VYSTAK_NATS_URL"),
        ({"AGENTS": ONE, "NATS_INBOX_PREFIX": "vystak"}, "VYSTAK_NATS_INBOX_PREFIX"),
        ({"AGENTS": ONE, "HTTP_PORT": "http"}, "VYSTAK_HTTP_PORT"),
        ({"AGENTS": ONE, "HTTP_PORT": "65536"}, "VYSTAK_HTTP_PORT"),
        ({"AGENTS": ONE, "MAX_REDRIVE_ATTEMPTS": "-1"}, "VYSTAK_MAX_REDRIVE_ATTEMPTS"),
        ({"AGENTS": ONE, "STREAM_MAX_AGE_S": "0"}, "VYSTAK_STREAM_MAX_AGE_S"),
        ({"AGENTS": ONE, "MAX_RUNNING_TURNS": "0"}, "VYSTAK_MAX_RUNNING_TURNS"),
        ({"AGENTS": ONE, "STOP_GRACE_S": "nan"}, "VYSTAK_STOP_GRACE_S"),
        ({"AGENTS": ONE, "LOG_LEVEL": "loud"}, "VYSTAK_LOG_LEVEL"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_explained_by_their_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    assert words in refused(monkeypatch, **variables)


def test_every_wrong_variable_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    words = refused(monkeypatch, AGENTS=ONE, HTTP_PORT="x", SEQ_BLOCK="x")

    assert "VYSTAK_HTTP_PORT" in words
    assert "VYSTAK_SEQ_BLOCK" in words


def test_a_password_never_comes_back_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    words = refused(
        monkeypatch, AGENTS='{"a": "ftp://me:secret@h"}', NATS_URL="nat://me:secret@h:4222"
    )

    assert "VYSTAK_NATS_URL" in words
    assert "secret" not in words


def test_passwords_are_not_shown_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(
        monkeypatch, AGENTS='{"a": "http://me:secret@h"}', NATS_URL="nats://me:secret@h:4222"
    )

    assert "secret" not in repr(settings)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_described(name: str) -> None:
    field = Settings.model_fields[name]

    assert field.description
    assert field.description.endswith(".")
    if field.annotation in (int, float):
        assert "0" in field.description, "say what 0 means"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("turns:pw\n", {"user": "turns", "password": "pw"}),
        ("turns:p:w", {"user": "turns", "password": "p:w"}),
    ],
)
def test_a_credentials_file_holds_a_user_and_a_password(
    tmp_path: Path, text: str, expected: dict[str, Any]
) -> None:
    file = tmp_path / "creds"
    file.write_text(text)

    assert broker_credentials(file) == expected


def test_a_credentials_file_of_nsc_is_left_to_the_client(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    file.write_text("-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n")

    assert broker_credentials(file) == {"user_credentials": str(file)}


@pytest.mark.parametrize("text", ["", "turns", ":pw", "turns:", "a:b\nc:d", "\udc80"])
def test_a_credentials_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "creds"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(SettingsError, match="VYSTAK_NATS_CREDS"):
        broker_credentials(file)


def test_a_missing_credentials_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        broker_credentials(tmp_path / "nowhere")


def test_further_prefixes_add_subjects_and_leave_the_turns_base(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = loaded(
        monkeypatch,
        AGENTS=TWO,
        NATS_SUBJECT_PREFIX="acme",
        NATS_MORE_PREFIXES="vystak, acme,vystak",
    )

    first, second = settings.agent_places()
    assert first.subjects == ("acme.default.agents.a.tasks", "vystak.default.agents.a.tasks")
    assert second.subjects == ("acme.default.agents.b.tasks", "vystak.default.agents.b.tasks")
    assert (first.turn_base, second.turn_base) == ("acme.default", "acme.default")


def test_a_further_prefix_that_is_no_subject_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    words = refused(monkeypatch, AGENTS=ONE, NATS_MORE_PREFIXES="vystak,")

    assert "VYSTAK_NATS_MORE_PREFIXES" in words


def test_agents_that_would_share_a_further_subject_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = '{"a b": "http://h", "a-b": "http://i"}'

    assert "rename one of them" in refused(monkeypatch, AGENTS=same, NATS_MORE_PREFIXES="x")
