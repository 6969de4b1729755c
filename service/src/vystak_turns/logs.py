"""The log: one line an event on stderr, for people on a terminal, as JSON elsewhere.

Libraries that use the standard `logging` come out in the same form. Credentials in URLs never do.
"""

from __future__ import annotations

import logging
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from vystak_turns.config import without_password

LogFormat = Literal["auto", "console", "json"]

# One line a request, or the same trouble once more, of libraries that we already report on.
_QUIET = {
    "nats": logging.CRITICAL,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "uvicorn": logging.WARNING,
}

_WITH_OWN_IDEAS = ("uvicorn", "uvicorn.error", "uvicorn.access")


def configure(form: LogFormat, level: str, stream: TextIO) -> None:
    """Send everything to `stream`; call it once, before the first line."""
    console = form == "console" or (form == "auto" and stream.isatty())
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *common,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                hide_passwords,
                *_renderers(console=console, colors=stream.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _WITH_OWN_IDEAS:
        # Whoever set them up before us gave them a handler or a level of their own.
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate, logger.disabled = True, False
        logger.setLevel(logging.NOTSET)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


def hide_passwords(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Take the credentials out of every URL in the line."""
    return {key: _clean(value) for key, value in event.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return without_password(value)
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, BaseException):
        return without_password(repr(value))
    return value


def _renderers(*, console: bool, colors: bool) -> list[Processor]:
    if console:
        return [structlog.dev.ConsoleRenderer(colors=colors)]
    return [
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(default=str),
    ]
