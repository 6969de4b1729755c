"""The bodies of the calls that run a turn."""

from __future__ import annotations

from typing import Any

from vystak_turns.ports import DispatchCall, ResumeCall


def dispatch_body(call: DispatchCall) -> dict[str, Any]:
    """Return the caller's request as the agent gets it: streaming, on the turn's thread."""
    return {
        **call.request,
        "stream": True,
        "previous_response_id": call.thread_id,
        "vystak": {"turn_id": call.turn_id, "epoch": call.epoch},
    }


def resume_body(call: ResumeCall) -> dict[str, Any]:
    """Return the order to go on.

    The key `after_checkpoint_id` asks for a catch-up, `null` for one from the turn's start. An
    agent that does not name its interrupts takes one bare answer.
    """
    body: dict[str, Any] = {
        "thread_id": call.thread_id,
        "turn_id": call.turn_id,
        "epoch": call.epoch,
    }
    if call.catch_up:
        body["after_checkpoint_id"] = call.after_checkpoint_id
    if not call.decisions:
        return body
    if call.decisions[0].unnamed:
        return {**body, "resume": call.decisions[0].value}
    return {**body, "decisions": {d.interrupt_id: d.value for d in call.decisions}}
