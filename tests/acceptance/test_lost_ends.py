"""Journal and log that know different things of a turn: one of them lost what the other has."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support import checkers
from tests.support.promises import LABELS, check_done
from vystak_turns_rpc.vocabulary import WireStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.checkers import Logged
    from tests.support.live import Live, TurnRef
    from vystak_turns.embedded.stack import Part

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]


async def held_in(live: Live, label: str) -> TurnRef:
    """A turn that is in a step, with everything before it told and recorded."""
    live.control.hold(label)
    turn = await live.dispatch()
    await on_to(live, turn, label)
    return turn


async def on_to(live: Live, turn: TurnRef, label: str, from_label: str | None = None) -> None:
    if from_label is not None:
        live.control.hold(label)
        live.control.release(from_label)
    await live.control.wait_started(label)
    await live.wait_told(turn, f"call_1_{label}")


def keep(path: Path, kept: Path) -> None:
    """Keep a file with what belongs to it, or a folder, as it is now."""
    kept.mkdir()
    for each in path.parent.glob(f"{path.name}*"):
        if each.is_dir():
            shutil.copytree(each, kept / each.name)
        else:
            shutil.copy2(each, kept / each.name)


def bring_back(path: Path, kept: Path) -> None:
    """Put back what was kept, and nothing else."""
    for each in path.parent.glob(f"{path.name}*"):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()
    shutil.copytree(kept, path.parent, dirs_exist_ok=True)


async def check_whole(live: Live, turn: TurnRef, before: Sequence[Logged]) -> None:
    """R1 to R4, where seqs may have a gap but are never used twice (R2)."""
    await live.wait_end(turn)
    await live.wait_status(turn, WireStatus.DONE)
    log, thread = await live.log(turn), await live.messages_of(turn)
    seqs = [message.seq for message in log]
    assert seqs == sorted(set(seqs))
    assert not {message.seq for message in before} & set(seqs)
    checkers.check_one_end(log, "response.completed")
    checkers.check_shown_is_done(log, thread)
    checkers.check_whole_reply(log, thread)
    checkers.check_steps_once(live.control.completed(), LABELS)


@pytest.mark.parametrize("also", [(), ("turns",)], ids=["alone", "with turn control"])
async def test_a_log_that_was_lost_with_its_broker_is_told_again_from_the_start(
    live: Live, also: tuple[Part, ...]
) -> None:
    turn = await held_in(live, "three")
    before = await live.log(turn)

    await live.kill("nats", *also)
    shutil.rmtree(live.stack.places.nats_data)
    await live.start("nats", *also)
    live.control.release("three")

    await check_whole(live, turn, before)


@pytest.mark.parametrize("also", [(), ("turns",)], ids=["alone", "with turn control"])
async def test_a_journal_that_is_ahead_of_a_log_without_its_end_loses_nothing(
    live: Live, also: tuple[Part, ...], tmp_path: Path
) -> None:
    data = live.stack.places.nats_data
    turn = await held_in(live, "two")
    await live.kill("nats")
    keep(data, tmp_path / "kept")
    await live.start("nats")
    await on_to(live, turn, "three", from_label="two")

    await live.kill("nats", *also)
    bring_back(data, tmp_path / "kept")
    await live.start("nats", *also)
    live.control.release("three")

    await check_whole(live, turn, ())


async def test_a_log_that_is_ahead_of_its_journal_loses_and_doubles_nothing(
    live: Live, tmp_path: Path
) -> None:
    journal = live.stack.places.turns_db
    turn = await held_in(live, "two")
    await live.kill("turns")
    keep(journal, tmp_path / "kept")
    await live.start("turns")
    await on_to(live, turn, "three", from_label="two")

    await live.kill("turns")
    bring_back(journal, tmp_path / "kept")
    await live.start("turns")
    live.control.release("three")

    await check_done(live, turn)
