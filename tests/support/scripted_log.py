"""A turn log and a turn control that follow a script, on a clock that only they move."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vystak_turns_client.errors import Idle, ServiceUnavailable
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_rpc.methods import TurnStatusResult

ASK_S = 5.0


@dataclass
class FakeClock:
    """Seconds that pass when somebody waits."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@dataclass
class ScriptedLog:
    """Each message appears at its time, counted from the start of the test.

    `away` are spans in which the broker does not answer.
    """

    clock: FakeClock
    script: list[tuple[float, LoggedMessage]] = field(default_factory=list)
    away: Sequence[tuple[float, float]] = ()
    start_s: float = field(init=False)
    follows: int = 0

    def __post_init__(self) -> None:
        """Count from now."""
        self.start_s = self.clock.now_s

    @property
    def elapsed_s(self) -> float:
        """Time since the start of the test."""
        return self.clock.now_s - self.start_s

    def say(self, at_s: float, *said: dict[str, Any]) -> None:
        """Let these events appear at a time."""
        for event in said:
            seq = len(self.script)
            self.script.append((at_s, LoggedMessage(seq, event, 10 + 2 * seq)))

    async def follow(
        self, subject: str, after_stream_seq: int, idle_s: float
    ) -> AsyncGenerator[LoggedMessage, None]:
        """Yield the messages, moving the clock to each; raise Idle after as much silence."""
        self.follows += 1
        heard_s = self.elapsed_s
        for at_s, message in list(self.script):
            if message.stream_seq <= after_stream_seq:
                continue
            comes_s = self._when_readable(max(at_s, heard_s))
            if comes_s - heard_s >= idle_s:
                break
            self.clock.now_s = self.start_s + comes_s
            heard_s = comes_s
            yield message
            if message.event["type"] in ("response.completed", "response.failed"):
                return
        self.clock.now_s = self.start_s + heard_s + idle_s
        raise Idle(subject, idle_s)

    async def rest(self, subject: str, after_stream_seq: int) -> list[LoggedMessage]:
        """Return what has appeared."""
        if self._when_readable(self.elapsed_s) > self.elapsed_s:
            raise Idle(subject, 0)
        return [
            message
            for at_s, message in self.script
            if at_s <= self.elapsed_s and message.stream_seq > after_stream_seq
        ]

    def _when_readable(self, at_s: float) -> float:
        return next((end_s for begin_s, end_s in self.away if begin_s <= at_s < end_s), at_s)


@dataclass
class ScriptedStatus:
    """Answers by the time; an exception instead of an answer is raised after the 5 s of a try."""

    log: ScriptedLog
    says: Callable[[float], TurnStatusResult | Exception]
    asked_s: list[float] = field(default_factory=list)

    async def __call__(self, turn_id: str) -> TurnStatusResult:
        """Answer `responses/turnStatus`."""
        self.asked_s.append(self.log.elapsed_s)
        answer = self.says(self.log.elapsed_s)
        if isinstance(answer, Exception):
            self.log.clock.now_s += ASK_S
            raise answer
        return answer


def status(word: str, **more: Any) -> TurnStatusResult:
    """An answer as it comes from the wire; without more it is what the original answers."""
    return TurnStatusResult.model_validate({"status": word, "interrupt": None, **more})


def unreachable() -> Exception:
    """Nobody answers."""
    return ServiceUnavailable("nobody answers")
