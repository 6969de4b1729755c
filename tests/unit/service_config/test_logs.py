from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from vystak_turns import logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_log_is_json_when_nobody_looks_at_it() -> None:
    stream = io.StringIO()
    logs.configure("auto", "info", stream)

    structlog.get_logger("here").info("turn ended", turn_id="t1")

    line = json.loads(stream.getvalue())
    assert (line["message"], line["level"], line["turn_id"]) == ("turn ended", "info", "t1")
    assert line["timestamp"].endswith("Z")


def test_the_log_is_for_reading_on_a_terminal() -> None:
    stream = Terminal()
    logs.configure("auto", "info", stream)

    structlog.get_logger("here").info("turn ended")

    assert "turn ended" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_libraries_log_in_the_same_form() -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").propagate = False
    stream = io.StringIO()
    logs.configure("json", "info", stream)

    logging.getLogger("uvicorn.error").warning("no %s", "luck")

    assert json.loads(stream.getvalue())["message"] == "no luck"


def test_less_important_lines_are_left_out() -> None:
    stream = io.StringIO()
    logs.configure("json", "warning", stream)

    structlog.get_logger("here").info("detail")
    structlog.get_logger("here").warning("trouble")

    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["trouble"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_password_in_a_url_is_never_logged(form: logs.LogFormat) -> None:
    stream = io.StringIO()
    logs.configure(form, "info", stream)
    url = "nats://me:secret@host:4222"

    structlog.get_logger("here").info("connected", url=url, urls=[url], more={"at": url})
    logging.getLogger("nats").critical("lost %s", url)
    try:
        int(url)
    except ValueError:
        structlog.get_logger("here").exception("failed", cause=OSError(url))

    assert "host:4222" in stream.getvalue()
    assert "secret" not in stream.getvalue()
