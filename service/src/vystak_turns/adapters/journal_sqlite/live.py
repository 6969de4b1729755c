"""The turns that have not ended, in memory: what the journal's only writer knows for certain."""

from __future__ import annotations

from vystak_turns.core.turn import Turn


class LiveTurns:
    """By id in order of creation, and by thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, Turn] = {}
        self._ids_by_thread: dict[tuple[str, str], dict[str, None]] = {}

    def put(self, turn: Turn) -> None:
        """Take a committed turn in place of its earlier self; one that ended is forgotten."""
        if turn.ended:
            self._forget(turn)
            return
        self._by_id[turn.turn_id] = turn
        self._ids_by_thread.setdefault((turn.agent, turn.thread_id), {})[turn.turn_id] = None

    def get(self, turn_id: str) -> Turn | None:
        """Return the turn unless it has ended or was never there."""
        return self._by_id.get(turn_id)

    def on_thread(self, agent: str, thread_id: str) -> list[Turn]:
        """Return the turns of a thread, in order of creation."""
        return [self._by_id[i] for i in self._ids_by_thread.get((agent, thread_id), ())]

    def all(self) -> tuple[Turn, ...]:
        """Return all turns, in order of creation."""
        return tuple(self._by_id.values())

    def _forget(self, turn: Turn) -> None:
        self._by_id.pop(turn.turn_id, None)
        thread = (turn.agent, turn.thread_id)
        ids = self._ids_by_thread.get(thread)
        if ids is not None:
            ids.pop(turn.turn_id, None)
            if not ids:
                del self._ids_by_thread[thread]
