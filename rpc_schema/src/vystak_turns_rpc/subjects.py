"""Subjects and names: built, taken apart, validated. Every rule about them is here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from vystak_turns_rpc.vocabulary import is_safe_token

KINDS: Final = frozenset({"agents", "channels", "transports"})

_AGENTS: Final = ".agents."
_STREAMS: Final = ".streams."
_SLUG_MAX: Final = 63


@dataclass(frozen=True, slots=True)
class TurnSubject:
    """The two tokens that name a turn on its agent's base."""

    conversation_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class CanonicalName:
    """The parts of `{name}.{kind}.{namespace}`."""

    name: str
    kind: str
    namespace: str


def tasks_subject(prefix: str, namespace: str, name: str) -> str:
    """Return the subject on which an agent's turns are asked for; the prefix is taken as it is."""
    if not _is_literal(prefix):
        message = f"subject prefix {prefix!r}: give tokens without spaces and wildcards"
        raise ValueError(message)
    return f"{prefix}.{slug(namespace)}.agents.{slug(name)}.tasks"


def queue_group(name: str) -> str:
    """Return the group that all replicas serving one agent share."""
    return f"agents.{slug(name)}"


def turn_base(tasks_subject: str) -> str:
    """Return the base of an agent's turn subjects; raises ValueError for no tasks subject."""
    base, found, _ = tasks_subject.partition(_AGENTS)
    if not found or not _is_literal(base):
        message = f"{tasks_subject!r} is no tasks subject: expected <base>.agents.<name>.tasks"
        raise ValueError(message)
    return base


def turn_subject(base: str, conversation_id: str, turn_id: str) -> str:
    """Return the subject of one turn's log; raises ValueError for an unsafe token."""
    for token in (conversation_id, turn_id):
        _require_safe(token)
    return f"{base}{_STREAMS}{conversation_id}.{turn_id}"


def parse_turn_subject(base: str, subject: str) -> TurnSubject:
    """Take a turn subject of this base apart; anything else is a ValueError (R11)."""
    own = f"{base}{_STREAMS}"
    tokens = subject.removeprefix(own).split(".")
    if not subject.startswith(own) or len(tokens) != 2:  # noqa: PLR2004 - the two ids
        message = f"must be {own}<conversation id>.<turn id>"
        raise ValueError(message)
    for token in tokens:
        _require_safe(token)
    return TurnSubject(*tokens)


def base_of_turn_subject(subject: str) -> str:
    """Return the base that a turn subject lies on; raises ValueError if it is none."""
    base, found, _ = subject.partition(_STREAMS)
    if not found or not _is_literal(base):
        message = f"{subject!r} is no turn subject: expected <base>.streams.<id>.<id>"
        raise ValueError(message)
    parse_turn_subject(base, subject)
    return base


def stream_name(base: str) -> str:
    """Return the name of the JetStream stream that keeps all turn logs of a base."""
    return f"{base.replace('.', '-')}-streams"


def slug(text: str) -> str:
    """Turn a name into one subject token of at most 63 signs; raises ValueError if none is left."""
    dashed = re.sub(r"[_. ]", "-", text.lower())
    cleaned = re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]", "", dashed)).strip("-")[:_SLUG_MAX]
    if not cleaned:
        message = f"name {text!r} has no letter a-z or digit to make a subject of"
        raise ValueError(message)
    return cleaned


def parse_canonical(text: str) -> CanonicalName:
    """Take `{name}.{kind}.{namespace}` apart; raises ValueError for any other form."""
    parts = text.split(".")
    if len(parts) != 3 or not all(parts) or parts[1] not in KINDS:  # noqa: PLR2004
        message = f"{text!r}: expected <name>.<{'|'.join(sorted(KINDS))}>.<namespace>"
        raise ValueError(message)
    return CanonicalName(*parts)


def _is_literal(subject: str) -> bool:
    return all(re.fullmatch(r"[^\s*>.]+", token) for token in subject.split("."))


def _require_safe(token: str) -> None:
    if not is_safe_token(token):
        message = f"{token[:40]!r}: an id is 1 to 128 letters, digits, '_' or '-'"
        raise ValueError(message)
