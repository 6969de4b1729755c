from __future__ import annotations

import pytest
from typer.testing import CliRunner

from vystak_turns_client.cli import app

NOBODY = {"VYSTAK_NATS_URL": "nats://127.0.0.1:1", "VYSTAK_AGENT_NAME": "", "NO_COLOR": "1"}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["status", "t1"], "--agent"),
        (["watch", "t1"], "CONVERSATION_ID.TURN_ID"),
        (["watch", "a.b.c"], "turn subject"),
        (["resume", "t1", "yes", "--agent", "worker"], "not JSON"),
        (["dispatch", "hi", "--agent", "worker", "--turn-id", "a.b"], "letters"),
        (["dispatch", "hi", "--agent", "é"], "name"),
        (["--prefix", "a.>", "status", "t1", "--agent", "worker"], "prefix"),
        (["--creds", "/nowhere", "status", "t1", "--agent", "worker"], "cannot be read"),
    ],
)
def test_wrong_usage_is_explained_before_anything_is_sent(arguments: list[str], hint: str) -> None:
    done = CliRunner().invoke(app, arguments, env=NOBODY)
    assert done.exit_code == 2
    assert hint in done.stderr
    assert done.stdout == ""


def test_the_help_names_the_exit_codes() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert "Exit codes" in done.stdout
