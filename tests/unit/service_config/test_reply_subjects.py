from __future__ import annotations

import pytest

from vystak_turns.adapters.rpc_nats import is_inbox


@pytest.mark.parametrize(
    "reply",
    ["_INBOX.abc", "_INBOX.abc.1", "_INBOX_panel.abc", "_R_.abc.def"],
)
def test_an_inbox_is_answered(reply: str) -> None:
    assert is_inbox(reply, "_INBOX_turns")


@pytest.mark.parametrize(
    "reply",
    [
        "vystak.default.streams.c.t",
        "vystak.default.agents.a.tasks",
        "$JS.API.STREAM.PURGE.vystak-default-streams",
        "$JS.ACK.x",
        "_INBOX",
        "_INBOX.",
        "_INBOX.>",
        "_INBOX.*.x",
        "X._INBOX.abc",
        "_inbox.abc",
        "",
    ],
)
def test_anything_else_is_not_answered(reply: str) -> None:
    assert not is_inbox(reply, "_INBOX_turns")


def test_our_own_inbox_is_for_the_broker_alone() -> None:
    assert not is_inbox("_INBOX_turns.abc", "_INBOX_turns")


def test_an_inbox_prefix_that_we_share_with_everybody_is_answered() -> None:
    assert is_inbox("_INBOX.abc", "_INBOX")
