"""What the agent answers to `checkpoint`, and why it refuses a call.

Agents that know nothing of turn control answer with fewer fields. What they leave out is read
so that the guarantees of the original remain: any checkpoint counts as this turn's, no run is
taken to be active, and a pending interrupt without a name gets one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from vystak_turns.core.facts import Refusal
from vystak_turns.core.findings import AgentView
from vystak_turns.core.turn import UNNAMED, Question
from vystak_turns.ports import CallRefusedError
from vystak_turns_rpc import jsontext
from vystak_turns_rpc.vocabulary import RefusalReason

_WORDS_MAX: Final = 500

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_TRY_AGAIN: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_REASONS: Final = {
    (_CONFLICT, RefusalReason.STALE_EPOCH): Refusal.STALE_EPOCH,
    (_CONFLICT, RefusalReason.BUSY): Refusal.BUSY,
    (_CONFLICT, RefusalReason.NOT_PENDING): Refusal.NOT_PENDING,
    (_NOT_FOUND, RefusalReason.UNKNOWN_CHECKPOINT): Refusal.UNKNOWN_CHECKPOINT,
    (_NOT_FOUND, RefusalReason.UNKNOWN_THREAD): Refusal.UNKNOWN_THREAD,
}


def read_view(payload: bytes, turn_id: str) -> AgentView:
    """Read a `checkpoint` answer as it concerns this turn; raises ValueError for nonsense."""
    answer = jsontext.load_lenient(payload)
    if not isinstance(answer, dict) or "checkpoint_id" not in answer:
        raise ValueError("expected a JSON object with checkpoint_id")
    checkpoint_id = _text(answer, "checkpoint_id")
    interrupted = _flag(answer, "interrupted", absent=False)
    questions = _questions(answer, checkpoint_id, interrupted=interrupted)
    at_rest = checkpoint_id is not None and not interrupted and not questions
    error = _text(answer, "error")
    return AgentView(
        checkpoint_id=checkpoint_id,
        stamped=_is_stamped(answer, turn_id),
        active=_flag(answer, "active", absent=False),
        finished=_flag(answer, "finished", absent=at_rest),
        error=None if error is None else clean(error),
        questions=questions,
        epoch=_epoch(answer),
        catches_up="turn_id" in answer,
    )


def refusal(status: int, body: bytes) -> CallRefusedError:
    """Say why a call was not taken, in the agent's words."""
    fields = _object(body)
    words = f"the agent answered {status}: {_words(fields, body)}"
    reason = fields.get("reason")
    if isinstance(reason, str) and (status, reason) in _REASONS:
        return CallRefusedError(_REASONS[status, RefusalReason(reason)], words)
    if status == _CONFLICT:
        return CallRefusedError(Refusal.BUSY, words)
    if status in _TRY_AGAIN or status >= _SERVER_ERROR:
        return CallRefusedError(Refusal.UNREACHABLE, words)
    return CallRefusedError(Refusal.WRONG, words)


def clean(words: str) -> str:
    """Shorten an agent's words, and replace what cannot be stored or sent on."""
    return words.encode("utf-8", "replace").decode()[:_WORDS_MAX]


def _is_stamped(answer: Mapping[str, Any], turn_id: str) -> bool:
    turns = answer.get("turns")
    if isinstance(turns, list):
        return turn_id in turns
    if "turn_id" in answer:
        return bool(answer["turn_id"] == turn_id)
    return answer["checkpoint_id"] is not None


def _questions(
    answer: Mapping[str, Any], checkpoint_id: str | None, *, interrupted: bool
) -> tuple[Question, ...]:
    payloads = answer.get("interrupts")
    if payloads is None:
        # The oldest agents only say that something waits.
        payloads = [None] if interrupted else []
    if not isinstance(payloads, list):
        raise ValueError("interrupts is no list")  # noqa: TRY004 - one error for all nonsense
    ids = answer.get("interrupt_ids")
    if ids is None:
        ids = [_made_up_id(checkpoint_id, *pair) for pair in enumerate(payloads)]
    if not isinstance(ids, list) or not all(isinstance(i, str) and i for i in ids):
        raise ValueError("interrupt_ids is no list of ids")
    if len(set(ids)) != len(payloads):
        raise ValueError("interrupt_ids does not name each of interrupts")
    return tuple(Question(*pair) for pair in zip(ids, payloads, strict=True))


def _made_up_id(checkpoint_id: str | None, index: int, payload: Any) -> str:
    """Name a question by all that is known: two of one node stand on the same checkpoint."""
    digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()
    return f"{UNNAMED}{checkpoint_id}:{index}:{digest[:12]}"


def _text(answer: Mapping[str, Any], name: str) -> str | None:
    value = answer.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _flag(answer: Mapping[str, Any], name: str, *, absent: bool) -> bool:
    value = answer.get(name, absent)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")  # noqa: TRY004 - as above
    return value


def _epoch(answer: Mapping[str, Any]) -> int | None:
    value = answer.get("epoch")
    if value is None:
        return None
    # The next token must be larger, and the journal's columns end at 2**63.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError("epoch is no number that turn control could have given")
    return value


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _words(fields: Mapping[str, Any], body: bytes) -> str:
    for name in ("error", "detail", "message"):
        value = fields.get(name)
        if isinstance(value, dict):
            value = value.get("message")
        if value:
            return clean(value if isinstance(value, str) else json.dumps(value))
    return clean(body.decode("utf-8", "replace")) or "without a reason"
