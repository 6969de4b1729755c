"""The frames of a turn: whoever comes back, wherever it was, ends up with what is retained."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.turn_events import (
    COMPLETED,
    CREATED,
    FAILED,
    asks,
    called,
    delta,
    log,
    result,
    rewind,
)
from vystak_turns_client.fold import fold
from vystak_turns_client.frames import KEEP_ALIVE, Frame, FrameFeed, Position, encode
from vystak_turns_client.retained import LoggedMessage
from vystak_turns_rpc import events


@dataclass
class Browser:
    """Shows frames as a page must: a reset drops what was shown."""

    shown: list[dict[str, Any]] = field(default_factory=list)

    def get(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.type == "reset":
                self.shown.clear()
            else:
                self.shown.append(frame.data)


def live(messages: Sequence[LoggedMessage]) -> list[tuple[int, Frame]]:
    """What a browser gets that was there from the start; each frame with its message's index."""
    feed = FrameFeed("t1")
    return [
        (index, frame) for index, message in enumerate(messages) for frame in feed.feed([message])
    ]


def resumed(
    last_event_id: str | None, held: Sequence[LoggedMessage], later: Sequence[LoggedMessage]
) -> tuple[list[Frame], list[Frame]]:
    feed = FrameFeed("t1", last_event_id)
    return feed.feed(held), [frame for message in later for frame in feed.feed([message])]


def types(frames: Sequence[Frame]) -> list[str]:
    return [frame.type for frame in frames]


def seqs_kept(messages: Sequence[LoggedMessage]) -> list[int]:
    """The seqs of texts that no rewind took back, by the plainest means."""
    kept: list[int] = []
    for message in messages:
        if message.event["type"] == events.TURN_REWIND:
            kept = [seq for seq in kept if seq <= message.event["to_seq"]]
        elif message.event["type"] == events.TEXT_DELTA:
            kept.append(message.seq)
    return kept


def logs_with_one_rewind() -> list[list[LoggedMessage]]:
    """Every place of a rewind in a log of five texts, with every target."""
    found = []
    for place in range(6):
        for to_seq in range(-1, place):
            said = [delta(f"{number} ") for number in range(5)]
            found.append(log(*said[:place], rewind(to_seq), *said[place:], COMPLETED))
    return found


def logs_with_two_rewinds() -> list[list[LoggedMessage]]:
    chance = random.Random(4)
    found = []
    for _ in range(60):
        said: list[dict[str, Any]] = [CREATED]
        for _ in range(2):
            said += [delta("x"), *called("c", "t"), result("c", "ok")][: chance.randrange(6)]
            said.append(rewind(chance.randrange(-1, len(said))))
        found.append(log(*said, delta("end"), COMPLETED))
    return found


def logs_that_use_seqs_twice() -> list[list[LoggedMessage]]:
    """As the original writes them: what was published right before a crash was not noted."""
    chance = random.Random(5)
    found = []
    for _ in range(60):
        messages: list[LoggedMessage] = []
        seq = 0
        said = [CREATED, delta("a"), *called("c", "t"), asks("t"), result("c", "ok"), delta("b")]
        for number, event in enumerate([*said[: chance.randrange(2, 9)], COMPLETED]):
            messages.append(LoggedMessage(seq, event, len(messages) + 5))
            seq += 1
            if chance.random() < 0.3:
                # Up to two messages are not noted: the rewind, or the next event, has their seq.
                seq = max(seq - chance.randrange(3), 0)
                if event is not COMPLETED and number:
                    back = rewind(chance.randrange(-1, seq + 1))
                    messages.append(LoggedMessage(seq, back, len(messages) + 5))
                    seq += 1
        found.append(messages)
    return found


@pytest.mark.parametrize(
    "logs",
    [logs_with_one_rewind(), logs_with_two_rewinds(), logs_that_use_seqs_twice()],
    ids=["one rewind", "two rewinds", "seqs that are used twice"],
)
def test_from_every_place_at_every_length_of_the_log_the_browser_ends_up_the_same(
    logs: list[list[LoggedMessage]],
) -> None:
    checked = overtaken = 0
    for messages in logs:
        whole = live(messages)
        through = Browser()
        through.get([frame for _, frame in whole])
        for place in range(-1, len(whole)):
            index = whole[place][0] if place >= 0 else -1
            for length in range(index + 1, len(messages) + 1):
                browser = Browser()
                browser.get([frame for _, frame in whole[: place + 1]])
                cursor = whole[place][1].id if place >= 0 else None
                caught_up, later = resumed(cursor, messages[:length], messages[length:])
                passed = [m for m in messages[index + 1 : length] if "to_seq" in m.event]
                if passed:
                    overtaken += 1
                    assert types(caught_up).count("reset") == 1
                    assert (caught_up[0].type, caught_up[0].data["seq"]) == (
                        "reset",
                        passed[-1].seq,
                    )
                else:
                    rest = [frame for _, frame in whole[place + 1 :]]
                    assert [*caught_up, *later] == rest
                browser.get([*caught_up, *later])
                assert browser.shown == through.shown
                checked += 1
    assert checked > 800
    assert overtaken > 250


def test_what_follows_a_rewind_is_one_reset_and_exactly_what_is_retained() -> None:
    for messages in logs_with_one_rewind():
        place = next(i for i, m in enumerate(messages) if "to_seq" in m.event)
        again = [frame for index, frame in live(messages) if index == place]
        assert types(again) == ["reset", *("delta" for _ in again[1:])]
        assert again[0].data["seq"] == messages[place].seq
        assert [frame.data["seq"] for frame in again[1:]] == seqs_kept(messages[: place + 1])


def test_from_every_place_at_every_age_of_the_log_nothing_is_missed() -> None:
    """Without a rewind: with nothing lost in between it goes on, else it begins anew."""
    messages = log(*(delta(f"{number} ") for number in range(6)), COMPLETED)
    whole = [frame for _, frame in live(messages)]
    for place, frame in enumerate(whole):
        held = max(6, place + 1)
        for gone in range(len(messages)):
            caught_up, later = resumed(frame.id, messages[gone:held], messages[max(held, gone) :])
            got = [*caught_up, *later]
            if gone <= place + 1:
                assert got == whole[place + 1 :]
            else:
                assert types(got[:1]) == ["reset"]
                assert [f.data for f in got[1:]] == [f.data for f in whole[gone:]]


def test_from_every_place_within_a_rewind_s_frames_at_every_age_nothing_is_missed() -> None:
    messages = log(delta("0"), delta("1"), delta("2"), delta("3"), rewind(2), delta("5"))
    whole = live(messages)
    for place in range(4, len(whole)):
        for gone in range(5):
            browser = Browser()
            browser.get([frame for _, frame in whole[: place + 1]])
            browser.get(resumed(whole[place][1].id, messages[gone:], ())[0])
            shown = [frame["seq"] for frame in browser.shown]
            # It went on, or it began anew with what there still is.
            assert shown in ([0, 1, 2, 5], seqs_kept(messages[gone:]))


def test_a_silent_log_that_lost_everything_leaves_the_page_as_it_is() -> None:
    """A parked turn that outlived its log: the page still shows the question."""
    messages = log(delta("a"), asks("rm"))
    cursor = live(messages)[-1][1].id
    feed = FrameFeed("t1", cursor)
    assert feed.feed([]) == []
    assert types(feed.feed([LoggedMessage(2, delta("b"), 99)])) == ["delta"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (LoggedMessage(7, delta("b"), 99), ["reset", "delta"]),
        (LoggedMessage(7, rewind(-1), 99), ["reset"]),
        (LoggedMessage(2, delta("b"), 1), ["reset", "delta"]),
        (LoggedMessage(7, rewind(-1), 1), ["reset"]),
    ],
    ids=["a gap", "a repaired log", "another stream", "another stream that is repaired"],
)
def test_a_log_that_begins_elsewhere_makes_the_page_begin_anew(
    message: LoggedMessage, expected: list[str]
) -> None:
    cursor = live(log(delta("a"), asks("rm")))[-1][1].id
    feed = FrameFeed("t1", cursor)
    assert feed.feed([]) == []
    assert types(feed.feed([message])) == expected


def test_a_page_that_was_just_emptied_is_not_emptied_again() -> None:
    gone = log(delta("a"), delta("b"), delta("c"))
    reset, *_ = resumed(live(gone)[0][1].id, gone[2:], ())[0]
    assert reset.type == "reset"
    assert types(resumed(reset.id, gone[2:], ())[0]) == ["delta"]


@pytest.mark.parametrize(
    "last_event_id", ["?", "1.2", "-1.0.0", "1.2.3.4", "0.0.1", "9" * 99, "\u0663.\u0663.\u0663"]
)
def test_a_place_that_nobody_gave_begins_anew(last_event_id: str) -> None:
    frames, _ = resumed(last_event_id, log(delta("a")), ())
    assert types(frames) == ["reset", "delta"]


def test_a_browser_that_comes_first_after_a_rewind_gets_a_reset_and_what_is_retained() -> None:
    frames, later = resumed(None, log(delta("a"), delta("b"), rewind(0), delta("c")), ())
    assert types(frames) == ["reset", "delta", "delta"]
    assert [frame.data["seq"] for frame in frames] == [2, 0, 3]
    assert later == []


def test_all_frames_of_a_rewound_turn_have_turn_and_seq_and_kept_ones_their_own() -> None:
    """As the original's proxy sends them: reset, the kept prefix, tool pairs included, new text."""
    said = [delta("a"), *called("c1", "search", '{"q":1}'), result("c1", "found"), delta("lost")]
    frames = [frame for _, frame in live(log(*said, rewind(4), delta("new"), COMPLETED))]
    assert [(frame.type, frame.data["seq"]) for frame in frames] == [
        ("delta", 0),
        ("tool_call", 3),
        ("tool_result", 4),
        ("delta", 5),
        ("reset", 6),
        ("delta", 0),
        ("tool_call", 3),
        ("tool_result", 4),
        ("delta", 7),
        ("done", 8),
    ]
    assert {frame.data["turn_id"] for frame in frames} == {"t1"}
    assert len({frame.id for frame in frames}) == len(frames)


def test_each_frame_has_the_fields_of_its_type() -> None:
    said = [delta("hi", "m7"), *called("c1", "rm", '{"x":1}'), result("c1", "gone", error=True)]
    given = FrameFeed("t1", title="T").feed(
        log(*said, asks("rm", x=1), result("c1", "ok"), COMPLETED)
    )
    text, call, stopped, question, answer, done = (
        {key: value for key, value in frame.data.items() if key not in ("turn_id", "seq")}
        for frame in given
    )
    assert text == {"type": "delta", "text": "hi", "item_id": "m7"}
    assert call == {
        "type": "tool_call",
        "tool_call_id": "c1",
        "tool_name": "rm",
        "arguments": '{"x":1}',
    }
    assert stopped == {
        "type": "tool_result",
        "tool_call_id": "c1",
        "output": "gone",
        "is_error": True,
    }
    assert question == {
        "type": "approval",
        "tool_call_id": "approval:rm",
        "tool_name": "rm",
        "input": {"x": 1},
        "payload": {"kind": "tool_approval", "tool": "rm", "args": {"x": 1}, "skill": "s"},
        "park_generation": None,
        "interrupt_id": None,
        "replaces": "c1",
    }
    assert (answer["output"], answer["is_error"]) == ("ok", False)
    assert done == {"type": "done", "response_id": "resp_1", "title": "T"}


def test_a_question_of_ours_carries_its_generation_and_replaces_nothing() -> None:
    said = [*called("c1", "rm"), events.approval_requested("really?", 3, "i9")]
    question = FrameFeed("t1").feed(log(*said))[-1].data
    assert (question["park_generation"], question["interrupt_id"]) == (3, "i9")
    assert (question["tool_call_id"], question["input"]) == ("approval:", {})
    assert (question["payload"], question["replaces"]) == ("really?", None)


def test_a_failure_is_an_error_frame_with_its_words_and_code() -> None:
    theirs = FrameFeed("t1").feed(log(FAILED))[-1]
    assert (theirs.data["message"], theirs.data["code"]) == ("no more tokens", None)
    ours = FrameFeed("t1").feed(log(events.failed("stopped", "cancelled")))[-1]
    assert (ours.type, ours.data["code"]) == ("error", "cancelled")
    malformed = FrameFeed("t1").feed(log({"type": events.RESPONSE_FAILED}))[-1]
    assert malformed.data["message"] == "the turn failed"


def test_nothing_follows_the_end_not_even_a_rewind_that_was_written_behind_it() -> None:
    """W3: the original may rewind a turn that has ended, and complete it empty."""
    messages = log(delta("a"), COMPLETED, rewind(-1), COMPLETED)
    feed = FrameFeed("t1")
    assert types(feed.feed(messages)) == ["delta", "done"]
    assert feed.ended
    cursor = live(messages)[0][1].id
    assert types(resumed(cursor, messages, ())[0]) == ["done"]


def test_a_call_s_name_is_that_of_the_retained_call() -> None:
    """W59: what was noted of a call is taken back with it."""
    said = [*called("c", "kept"), *called("c", "lost")[:1], rewind(2), *called("c", "x")[2:]]
    frames = [frame.data for _, frame in live(log(*said))]
    assert [frame["tool_name"] for frame in frames if frame["type"] == "tool_call"] == [
        "kept",
        "kept",
        "kept",
    ]


def test_what_is_not_understood_gives_no_frame_and_keeps_the_place() -> None:
    messages = log(delta("a"), {"type": "vystak.keepalive"}, CREATED, delta("b"))
    (_, first), (_, second) = live(messages)
    assert resumed(first.id, messages, ())[0] == [second]


def test_a_frame_is_one_event_whatever_is_in_it() -> None:
    frame = FrameFeed("t1").feed(log(delta("a\n\ndata: x\r\u2028<script>é\ud800")))[0]
    head, body = encode(frame).split(b"\n", 1)
    assert head == f"id: {frame.id}".encode()
    assert body.startswith(b"data: ")
    assert body.endswith(b"\n\n")
    assert body.count(b"\n") == 2
    assert b"\r" not in body
    assert json.loads(body[6:]) == frame.data


def test_the_sign_of_life_is_a_comment() -> None:
    assert encode(KEEP_ALIVE) == b": keep-alive\n\n"


def test_a_place_reads_back_as_it_was_written() -> None:
    assert Position.parse(str(Position(1, 2, 3))) == Position(1, 2, 3)
    assert Position.parse(None) is None
    assert Position.parse("") is None


def test_the_page_and_the_row_are_made_of_the_same_events() -> None:
    for messages in [*logs_with_two_rewinds(), *logs_that_use_seqs_twice()]:
        browser = Browser()
        browser.get([frame for _, frame in live(messages)])
        seen = fold(messages)
        texts = [frame["text"] for frame in browser.shown if frame["type"] == "delta"]
        answered = {f["tool_call_id"] for f in browser.shown if f["type"] == "tool_result"}
        assert "".join(texts) == seen.text
        assert answered == {call.call_id for call in seen.tool_calls if call.output is not None}
