"""W11, W12: what a boundary keeps is exactly what its checkpoint holds, wherever one rewinds to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.support import checkers
from tests.support.promises import LABELS, check_done

if TYPE_CHECKING:
    from tests.acceptance.conftest import StartLive
    from tests.support.live import Live, TurnRef

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


def boundaries(live: Live, turn: TurnRef) -> list[tuple[str, int]]:
    """Return checkpoint and seq of the turn's boundaries, read from outside."""
    query = "SELECT checkpoint_id, seq FROM turn_boundaries WHERE turn_id = ? ORDER BY seq"
    with closing(sqlite3.connect(live.stack.places.turns_db)) as connection:
        return list(connection.execute(query, [turn.turn_id]))


def messages_at(live: Live, thread_id: str, checkpoint_id: str) -> list[Any]:
    """Return what the agent had said and done when it committed a checkpoint."""
    place = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    with closing(sqlite3.connect(live.stack.places.sessions_db)) as connection:
        found = SqliteSaver(connection).get_tuple({"configurable": place})
    assert found is not None
    return [m for m in found.checkpoint["channel_values"]["messages"] if m.type != "human"]


@pytest.mark.parametrize("graph", ["builder", "parallel"])
async def test_w11_a_log_up_to_a_boundary_shows_exactly_what_its_checkpoint_holds(
    start_live: StartLive, graph: str
) -> None:
    live = await start_live(f"steps:{graph}")
    turn = await live.dispatch()
    log = await check_done(live, turn, LABELS)
    thread_id = (await live.status(turn)).thread_id
    assert thread_id is not None

    recorded = boundaries(live, turn)

    assert len(recorded) > len(LABELS)
    for checkpoint_id, seq in recorded:
        kept = [message for message in log if message.seq <= seq]
        checkers.check_shown_is_done(kept, messages_at(live, thread_id, checkpoint_id))
