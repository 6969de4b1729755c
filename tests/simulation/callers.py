"""A panel in the simulation: dispatches a turn, asks for its status, decides, cancels."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, Final

from tests.simulation.blows import Kind
from tests.simulation.checkers import History, Message, Sight, Start
from tests.simulation.flows import EXHAUSTED, Ask
from tests.simulation.flows import Start as When
from tests.simulation.world import BASE, SimulatedWorld

_FIRST_POLL_S: Final = 0.03
_LAST_POLL_S: Final = 0.5
_TRY_AGAIN: Final = -32052
_ENDED: Final = frozenset({"done", "failed"})


class Caller:
    """Sees one turn through; `before` is the caller of the turn before it."""

    def __init__(
        self, world: SimulatedWorld, ask: Ask, turn_id: str, before: Caller | None
    ) -> None:
        self._world = world
        self._ask = ask
        self._before = before
        self.turn_id = turn_id
        self.subject = f"{BASE}.streams.conversation.{turn_id}"
        self.thread_id: str | None = None
        self.word = ""
        self.over = False
        self._changed = asyncio.Event()
        self._acknowledged = False
        self._refused: str | None = None
        self._sights: list[Sight] = []
        self._accepted: defaultdict[str, list[object]] = defaultdict(list)
        self._perhaps: defaultdict[str, set[object]] = defaultdict(set)
        self._objections: list[str] = []
        self._parked_since_s: dict[int, float] = {}
        self._cancelled = False

    async def see_it_through(self) -> None:
        """Act until the turn has ended, or was refused."""
        try:
            await self._wait_for_start()
            await self._dispatch()
            if self._refused is None:
                await self._follow()
        finally:
            self.over = True
            self._tell()

    async def _wait_for_start(self) -> None:
        before = self._before
        if before is None:
            return
        wanted = {
            When.AT_ONCE: None,
            When.AFTER_END: None,
            When.WHILE_PARKED: "parked",
            When.WHILE_RUNNING: "running",
        }[self._ask.start]
        while not before.over and self._ask.start is not When.AT_ONCE and before.word != wanted:
            await before._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- requests ------------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        on_thread = self._before.thread_id if self._before and self._ask.same_thread else None
        request = {"input": self._ask.script, "previous_response_id": on_thread}
        reply = await self._create(request)
        if "error" in reply:
            self._note_refusal(reply["error"])
            return
        self._acknowledged = True
        if self._ask.repeats:
            if "result" not in await self._create(request):
                self._objections.append("R5 a repeat was refused")
            if "error" not in await self._create({**request, "input": "another"}):
                self._objections.append("R5 another request was taken under the same id")

    async def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        params = {
            "request": request,
            "turn_id": self.turn_id,
            "stream_subject": self.subject,
        }
        return await self._until_answered("responses/createDetached", params)

    def _note_refusal(self, error: dict[str, Any]) -> None:
        holder = (error.get("data") or {}).get("turn_id")
        if self._before is None or holder != self._before.turn_id:
            self._objections.append(f"R13 refused for no reason: {error}")
        elif self._before.over:
            self._objections.append("R13 refused although the turn before it had ended")
        self._refused = str(holder)

    async def _follow(self) -> None:
        poll_s = _FIRST_POLL_S
        while True:
            status = await self._status()
            if self._ask.cancels == self.word and not self._cancelled:
                await self.cancel()
            if self.word in _ENDED:
                return
            asked = self.word == "parked" and not self._cancelled
            if asked and self._has_thought(status["park_generation"]):
                poll_s = _FIRST_POLL_S
                await self._decide(status)
            await asyncio.sleep(poll_s)
            poll_s = min(poll_s * 1.4, _LAST_POLL_S)

    async def look_again(self) -> None:
        """Ask for the status once more, when all is long over."""
        if self._acknowledged:
            await self._status()

    async def _status(self) -> dict[str, Any]:
        reply = await self._until_answered("responses/turnStatus", {"turn_id": self.turn_id})
        if "result" not in reply:
            self._objections.append(f"R8 turnStatus of a known turn was answered {reply}")
        status: dict[str, Any] = reply["result"]
        self.thread_id = status.get("thread_id") or self.thread_id
        seen = (status["status"], status.get("park_generation"))
        before = self._sights[-1].status if self._sights else {}
        if seen != (before.get("status"), before.get("park_generation")):
            self._sights.append(Sight(status, self._messages(), self._rendered()))
            self.word = status["status"]
            self._tell()
        return status

    def _has_thought(self, generation: int) -> bool:
        now_s = asyncio.get_running_loop().time()
        since_s = self._parked_since_s.setdefault(generation, now_s)
        return now_s >= since_s + self._ask.waits_s

    async def _decide(self, status: dict[str, Any]) -> None:
        generation, interrupt_id = status["park_generation"], status["interrupt_id"]
        if self._ask.stale:
            await self._decide_in_vain(park_generation=generation - 1)
            await self._decide_in_vain(interrupt_id="another")
        name = {} if self._ask.plain else {"park_generation": generation}
        values = [f"yes {voice} to {interrupt_id}" for voice in range(self._ask.voices)]
        replies = await asyncio.gather(*(self._resume(value, name) for value in values))
        for value, reply in zip(values, replies, strict=True):
            if reply is None:
                self._perhaps[interrupt_id].add(value)
            elif "result" in reply:
                self._accepted[interrupt_id].append(value)

    async def _decide_in_vain(self, **name: object) -> None:
        reply = await self._resume("stale", name)
        if reply is not None and "error" not in reply:
            self._objections.append(f"R6 a decision for {name} was accepted")

    async def _resume(self, value: str, name: dict[str, Any]) -> dict[str, Any] | None:
        params = {"turn_id": self.turn_id, "resume": value, **name}
        return await self._world.call(self._ask.agent, "responses/resumeDetached", params)

    async def cancel(self) -> None:
        """Cancel the turn, if there is one; its caller follows it to its end."""
        if not self._acknowledged:
            return
        self._cancelled = True
        params = {"turn_id": self.turn_id}
        reply = await self._until_answered("responses/cancelDetached", params)
        if "result" not in reply:
            self._objections.append(f"a cancel was answered {reply}")

    async def _until_answered(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        while True:
            reply = await self._world.call(self._ask.agent, method, params)
            if reply is not None and (reply.get("error") or {}).get("code") != _TRY_AGAIN:
                return reply
            await asyncio.sleep(0.05)

    # --- what was recorded ---------------------------------------------------------------------

    def history(self) -> History:
        """Return all that was recorded of the turn."""
        agent, thread = self._world.agents[self._ask.agent], self._thread()
        mine = [c for c in thread.checkpoints if c.turn_id == self.turn_id] if thread else []
        return History(
            ends=self._ends(),
            acknowledged=self._acknowledged,
            refused=self._refused,
            sights=tuple(self._sights),
            accepted=self._accepted,
            perhaps=self._perhaps,
            objections=tuple(self._objections),
            messages=self._messages(),
            rendered=self._rendered(),
            starts=tuple(
                Start(e.step, e.task, e.nested, e.life, e.at_s, e.outcome, e.answers)
                for e in agent.executions
                if e.turn_id == self.turn_id
            ),
            inputs=sum(c.source == "input" for c in mine),
            doubled_runs=agent.doubled_runs,
            redrives=self._world.redrives(self.turn_id),
            free_thread_s=self._thread_was_free_s(),
            orderly=not self._world.claims_unprovoked
            and all(b.kind is Kind.STOP for b in self._world.plan),
        )

    def _ends(self) -> tuple[str, ...]:
        """A blow that cancels permits one more end, and so do too many blows."""
        more = ["failed cancelled"] if self._cancelled else []
        if self._world.may_exhaust() and not self._ask.strict:
            more += EXHAUSTED
        return (*self._ask.ends, *more)

    def _thread_was_free_s(self) -> float:
        if self._before is None or not self._ask.same_thread:
            return 0.0
        messages = self._before._messages()
        return messages[-1].at_s if messages else 0.0

    def _messages(self) -> tuple[Message, ...]:
        subject = self._world.log.subjects.get(self.subject)
        stored = subject.stored if subject else []
        return tuple(
            Message(m.message_id, m.seq, m.token, m.event, m.at_s, m.first, m.after_loss)
            for m in stored
        )

    def _rendered(self) -> tuple[dict[str, Any], ...]:
        thread = self._thread()
        return tuple(thread.rendered(self.turn_id)) if thread else ()

    def _thread(self) -> Any:
        return self._world.agents[self._ask.agent].threads.get(self.thread_id or "")
