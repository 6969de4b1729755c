"""What the log's last message says about an append whose outcome is unknown (R2, R7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vystak_turns.core.findings import Content, Tail, Terminal
from vystak_turns.core.settle import (
    Attempted,
    Landed,
    Moved,
    Overtaken,
    Rebase,
    Retry,
    Verdict,
    settle,
)

MINE = "t1:5:7"


def attempted(*, forced: bool = False, first: bool = True) -> Attempted:
    return Attempted(MINE, token=7, expected=40, forced=forced, first=first)


def last(
    stream_seq: int,
    token: int | None,
    message_id: str = "another",
    what: Content | Terminal | None = None,
) -> Tail:
    return Tail(stream_seq, 5, token, message_id, what or Content())


@pytest.mark.parametrize(
    ("tail", "verdict"),
    [
        (None, Retry(0)),
        (last(41, 7, MINE), Landed(41)),
        (last(40, 6), Retry(40)),
        (last(41, 8), Overtaken()),
        (last(41, 8, what=Terminal(None)), Overtaken()),
        (last(41, 6), Moved()),
        (last(41, None), Moved()),
        (last(41, 6, what=Terminal(None)), Moved()),
    ],
)
def test_a_first_append_is_judged_by_the_last_message(tail: Tail | None, verdict: Verdict) -> None:
    assert settle(tail, attempted()) == verdict


@pytest.mark.parametrize("token", [6, 7, None])
def test_a_rewind_goes_on_top_of_a_zombies_last_append(token: int | None) -> None:
    assert settle(last(41, token), attempted(forced=True)) == Rebase(41, 5)


def test_a_rewind_does_not_go_on_top_of_a_terminal_event() -> None:
    assert settle(last(41, 6, what=Terminal(None)), attempted(forced=True)) == Moved()


def test_a_later_append_steps_over_a_foreign_message() -> None:
    assert settle(last(41, None), attempted(first=False)) == Rebase(41, 5)


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_log_that_lost_its_end_is_probed(forced: bool, first: bool) -> None:
    assert settle(last(39, 7), attempted(forced=forced, first=first)) == Moved()


def test_what_needs_everything_before_it_is_not_appended_to_an_emptied_log() -> None:
    assert settle(None, replace(attempted(), needs_all=True)) == Moved()
    assert settle(None, replace(attempted(), needs_all=True, expected=0)) == Retry(0)
