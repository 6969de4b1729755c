"""What must be true of a turn that is over, in one call."""

from __future__ import annotations

from collections.abc import Collection

from tests.support import checkers
from tests.support.live import Live, TurnRef
from vystak_turns_rpc.vocabulary import WireStatus

LABELS = ("one", "two", "three", "four")


async def check_done(
    live: Live,
    turn: TurnRef,
    labels: Collection[str] = LABELS,
    maybe_twice: Collection[str] = (),
) -> list[checkers.Logged]:
    """R1 to R4 for a turn that ends well; returns its log."""
    await live.wait_end(turn)
    await live.wait_status(turn, WireStatus.DONE)
    log = await live.log(turn)
    thread = await live.messages_of(turn)
    checkers.check_one_end(log, "response.completed")
    checkers.check_sequence(log)
    checkers.check_shown_is_done(log, thread)
    checkers.check_whole_reply(log, thread)
    checkers.check_steps_once(live.control.completed(), labels, maybe_twice)
    return log
