from __future__ import annotations

import asyncio
import threading

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from vystak_turns_agent.threads import closers, words_of_error
from vystak_turns_agent.work import CountingExecutor, ThreadCount, _working_for


def call(name: str) -> dict[str, object]:
    return {"name": name, "args": {}, "id": name, "type": "tool_call"}


def test_each_unanswered_call_of_the_last_ai_message_is_closed() -> None:
    asked = AIMessage("", tool_calls=[call("a"), call("b"), call("c")])
    closed = closers((asked, ToolMessage("done", tool_call_id="b")))
    assert [(message.tool_call_id, message.status) for message in closed] == [
        ("a", "error"),
        ("c", "error"),
    ]


def test_answered_and_older_calls_are_left_alone() -> None:
    asked = AIMessage("", tool_calls=[call("a")])
    assert closers((asked, ToolMessage("done", tool_call_id="a"))) == []
    assert closers((asked, HumanMessage("x"), AIMessage("fine"))) == []
    assert closers(()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ValueError('no such file')", "ValueError: no such file"),
        ("ValueError('a, b',)", "ValueError: a, b"),
        ("KeyError('it\\'s')", "KeyError: it's"),
        ("OSError(2, 'gone')", "OSError: (2, 'gone')"),
        ("RuntimeError()", "RuntimeError()"),
        ("<odd>", "<odd>"),
    ],
)
def test_a_stored_error_becomes_words(text: str, words: str) -> None:
    assert words_of_error(text) == words


async def test_threads_are_counted_for_the_run_that_started_them() -> None:
    count = ThreadCount(asyncio.get_running_loop())
    may_end = threading.Event()
    with CountingExecutor(2) as executor:
        uncounted = executor.submit(may_end.wait)
        await asyncio.wait_for(count.none_left(), 5)
        token = _working_for.set(count)
        counted = executor.submit(may_end.wait)
        _working_for.reset(token)
        waiting = asyncio.ensure_future(count.none_left())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.02)
        may_end.set()
        await asyncio.wait_for(waiting, 5)
        assert counted.result(5)
        assert uncounted.result(5)
