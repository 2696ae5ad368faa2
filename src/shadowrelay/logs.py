"""Configures the diagnostic log: events on standard error, for people on a terminal, else as JSON.

The record of messages is the message tracking log: nothing that must be kept is written only here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import TextIO, cast

import structlog

_FOREIGN_FLOOR = {
    "asyncio": logging.WARNING,
    "aiosqlite": logging.WARNING,
    "uvicorn.access": logging.WARNING,
}
# aiosmtpd logs every command and what a client sends to authenticate, and warns of what strangers do.
_SILENT = frozenset({"mail.log", "mail.debug"})
_HANDLER = "shadowrelay"


def configure(*, level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:
    """Send structlog and the standard logging of our libraries to one stream (standard error).

    ``level`` is debug, info, warning or error; ``format`` is auto, json or console. The last call wins. Times
    are UTC in ISO 8601. Libraries that log every request log warnings only, unless ``level`` is debug;
    aiosmtpd always logs errors only, so that no password is ever in a log.
    """
    output = stream if stream is not None else sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    as_json = format == "json" or (format == "auto" and not output.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    rendering: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        # With rich installed, the default would show the values of all variables: mail and passwords.
        else [
            structlog.dev.ConsoleRenderer(
                colors=output.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _constant_event],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    _attach(output, formatter, threshold)


def _attach(stream: TextIO, formatter: logging.Formatter, threshold: int) -> None:
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if handler.name == _HANDLER]:
        root.removeHandler(old)
    handler = logging.StreamHandler(stream)
    handler.name = _HANDLER
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(threshold)
    for name in ("uvicorn", "uvicorn.error", *_FOREIGN_FLOOR, *_SILENT):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        floor = _FOREIGN_FLOOR.get(name, threshold)
        library.setLevel(threshold if threshold <= logging.DEBUG else max(threshold, floor))
        if name in _SILENT:
            library.setLevel(logging.ERROR)


def _constant_event(
    logger: object, method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """A library's sentence becomes the field ``message`` of the constant event ``library_message``."""
    del logger, method
    event["message"] = cast("str", event.get("event", ""))
    event["event"] = "library_message"
    return event
