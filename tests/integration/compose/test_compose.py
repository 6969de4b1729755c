"""compose.yaml and the fragments, as Compose itself reads them. No engine is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributions import ROOT

COMPOSE = Path(sys.executable).parent / "docker-compose"
SECRETS = ("turns.creds", "panel.creds", "panel.token")


def compose(*arguments: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [COMPOSE, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def config(*files: Path, **variables: str) -> dict[str, Any]:
    chosen = [part for file in (ROOT / "compose.yaml", *files) for part in ("-f", file)]
    read: dict[str, Any] = json.loads(compose(*chosen, "config", "--format", "json", **variables))
    return read


def fragment(folder: Path, declared: str, *options: str) -> Path:
    """What `vystak-turns volumes` prints for a declaration, as a file."""
    agent = folder / "agent.yaml"
    agent.write_text(declared)
    command = [sys.executable, "-m", "vystak_turns", "volumes", str(agent), *options]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    file = folder / "fragment.yaml"
    file.write_text(printed)
    return file


def at_data(read: dict[str, Any], service: str) -> list[str]:
    """Names of the volumes that a service has at /data."""
    mounts = [m for m in read["services"][service]["volumes"] if m["target"] == "/data"]
    return [read["volumes"][mount["source"]]["name"] for mount in mounts]


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return config()


def test_the_compose_file_is_valid_without_a_warning() -> None:
    done = subprocess.run(
        [COMPOSE, "-f", ROOT / "compose.yaml", "config", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_agent_and_turn_control_share_the_agents_volume_at_data(plain: dict[str, Any]) -> None:
    assert at_data(plain, "agent") == at_data(plain, "turns") == ["vystak-agent-assistant-data"]
    assert at_data(plain, "nats") == ["vystak-nats-data"]


def test_the_volume_follows_the_agents_name() -> None:
    read = config(VYSTAK_AGENT_NAME="shop")

    assert at_data(read, "agent") == at_data(read, "turns") == ["vystak-agent-shop-data"]
    assert read["services"]["agent"]["container_name"] == "vystak-shop"
    assert read["services"]["turns"]["environment"]["VYSTAK_AGENT_NAME"] == "shop"
    assert read["services"]["panel"]["environment"]["VYSTAK_AGENT_NAME"] == "shop"


def test_every_service_is_confined_and_comes_back(plain: dict[str, Any]) -> None:
    assert set(plain["services"]) == {"nats", "turns", "agent", "panel"}
    for service in plain["services"].values():
        assert service["restart"] == "unless-stopped"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["healthcheck"]["test"][0] == "CMD"
        assert service["stop_grace_period"]


def test_ports_are_open_on_the_loopback_only_and_the_agents_not_at_all(
    plain: dict[str, Any],
) -> None:
    open_ports = {
        (name, port["host_ip"], port["published"])
        for name, service in plain["services"].items()
        for port in service.get("ports", [])
    }

    assert open_ports == {
        ("nats", "127.0.0.1", "4222"),
        ("turns", "127.0.0.1", "8130"),
        ("panel", "127.0.0.1", "8100"),
    }


def test_only_turn_control_reaches_the_agent(plain: dict[str, Any]) -> None:
    members = {
        network: {n for n, s in plain["services"].items() if network in s["networks"]}
        for network in ("agents", "broker")
    }

    assert members == {"agents": {"agent", "turns"}, "broker": {"nats", "turns", "panel"}}


def test_each_part_waits_for_the_health_of_what_it_needs(plain: dict[str, Any]) -> None:
    waits = {n: set(s.get("depends_on", {})) for n, s in plain["services"].items()}

    assert waits == {
        "nats": set(),
        "agent": set(),
        "turns": {"nats"},
        "panel": {"nats", "turns", "agent"},
    }
    for service in plain["services"].values():
        for other in service.get("depends_on", {}).values():
            assert other["condition"] == "service_healthy"


def test_the_agent_leaves_its_subject_to_turn_control(plain: dict[str, Any]) -> None:
    assert plain["services"]["agent"]["environment"]["VYSTAK_TRANSPORT_TYPE"] == "http"


def test_secrets_are_files_and_stand_nowhere_else(plain: dict[str, Any]) -> None:
    text = json.dumps({name: s.get("environment") for name, s in plain["services"].items()})
    users = {n: [x["source"] for x in s.get("secrets", [])] for n, s in plain["services"].items()}

    assert users == {
        "agent": [],
        "nats": ["turns.creds", "panel.creds"],
        "turns": ["turns.creds"],
        "panel": ["panel.creds", "panel.token"],
    }
    assert "PASSWORD" not in text


def test_the_secrets_are_made_once_and_begin_with_a_letter(tmp_path: Path) -> None:
    script = tmp_path / "docker" / "secrets.sh"
    script.parent.mkdir()
    script.write_text((ROOT / "docker" / "secrets.sh").read_text())

    made = []
    for _ in range(2):
        subprocess.run(["/bin/sh", script], check=True)
        made.append({name: (tmp_path / ".secrets" / name).read_text() for name in SECRETS})

    assert made[0] == made[1]
    for role in ("turns", "panel"):
        user, _, password = made[0][f"{role}.creds"].strip().partition(":")
        assert user == role
        assert password[0].isalpha()
        assert len(password) > 40
    assert len({text.rpartition(":")[2] for text in made[0].values()}) == 3
    assert (tmp_path / ".secrets").stat().st_mode & 0o077 == 0


def test_git_and_builds_see_no_secret() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", *(f".secrets/{name}" for name in SECRETS)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    assert len(ignored.stdout.split()) == len(SECRETS)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


@pytest.mark.parametrize(
    ("declared", "volume"),
    [
        ("name: assistant", "vystak-agent-assistant-data"),
        ("name: assistant\nsessions: {engine: postgres}", "vystak-agent-assistant-data"),
        ("name: assistant\nsessions: {engine: sqlite}", "vystak-data-sessions"),
        ("name: assistant\nmemory: {engine: sqlite}", "vystak-data-memory"),
        (
            (
                "name: assistant\nmemory: {engine: sqlite}\n"
                "sessions: {engine: sqlite, volume: mine}\nservices: [{name: x, engine: sqlite}]"
            ),
            "mine",
        ),
    ],
)
def test_a_fragment_over_the_compose_file_leaves_one_mount_at_data(
    tmp_path: Path, declared: str, volume: str
) -> None:
    read = config(fragment(tmp_path, declared))

    assert at_data(read, "agent") == at_data(read, "turns") == [volume]
    created = [v for v in read["volumes"].values() if v["name"] == volume]
    assert not any(v.get("external") for v in created)


def test_a_fragment_may_name_other_services(tmp_path: Path) -> None:
    options = ("--agent", "b", "--agent-service", "b", "--turns-service", "b-turns")
    file = fragment(tmp_path, "agents: [{name: a}, {name: b}]", *options)
    base = tmp_path / "base.yaml"
    base.write_text("services: {b: {image: b}, b-turns: {image: t}}")

    read = json.loads(compose("-f", base, "-f", file, "config", "--format", "json"))

    assert at_data(read, "b") == at_data(read, "b-turns") == ["vystak-agent-b-data"]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("[", "while parsing"),
        ("agents: [{name: a}, {name: b}]", "name one with --agent"),
        ("name: a\nsessions: sqlite", "sessions: expected a mapping"),
    ],
)
def test_a_declaration_that_says_nothing_is_refused_in_words(
    tmp_path: Path, declared: str, words: str
) -> None:
    agent = tmp_path / "agent.yaml"
    agent.write_text(declared)
    command = [sys.executable, "-m", "vystak_turns", "volumes", str(agent)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
