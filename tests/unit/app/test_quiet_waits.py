"""A long outage is told once a wait: a thousand turns trying on must not fill the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from tests.support.turn_samples import TOKEN, turn_in
from vystak_turns.adapters.system import RandomIds
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.log_writer import LogWriter
from vystak_turns.app.pauses import Pauses
from vystak_turns.core.facts import SeqsReserved
from vystak_turns.ports import JournalUnavailableError, LogUnavailableError
from vystak_turns_rpc.vocabulary import TurnState

if TYPE_CHECKING:
    from vystak_turns.core.findings import Tail
    from vystak_turns.core.turn import Turn

TRIES = 20


class NoTime:
    """A clock on which pauses take no time."""

    def now_s(self) -> float:
        return 1.0

    async def sleep(self, delay_s: float) -> None:
        assert delay_s > 0


class Away:
    """A log and a journal that cannot be used for a while."""

    def __init__(self) -> None:
        self.tries = 0

    async def tail(self, _subject: str) -> Tail | None:
        self.tries += 1
        if self.tries < TRIES:
            raise LogUnavailableError("the broker is not connected")
        return None

    async def get(self, _turn_id: str) -> Turn:
        return turn_in(TurnState.RUNNING)

    async def save(self, _turn: Turn, _boundaries: object) -> None:
        self.tries += 1
        if self.tries < TRIES:
            raise JournalUnavailableError("the disk is full")


def pauses() -> Pauses:
    return Pauses(NoTime(), RandomIds(), first_s=1.0, longest_s=2.0)


async def test_r15_an_absent_log_is_told_once_a_wait() -> None:
    away = Away()
    ledger = Ledger(away, NoTime())  # type: ignore[arg-type]
    turn = turn_in(TurnState.RUNNING)
    writer = LogWriter(away, ledger, pauses(), 1000, turn, None)  # type: ignore[arg-type]

    with capture_logs() as lines:
        await writer.read_tail()

    assert away.tries == TRIES
    assert [line["event"] for line in lines] == ["log unavailable"]


async def test_r15_an_absent_journal_is_told_once_a_wait() -> None:
    away = Away()
    ledger = Ledger(away, NoTime())  # type: ignore[arg-type]

    with capture_logs() as lines:
        await ledger.apply_patiently("t1", SeqsReserved(TOKEN, 9000), pauses())

    assert away.tries == TRIES
    assert [line["event"] for line in lines] == ["journal unavailable"]
