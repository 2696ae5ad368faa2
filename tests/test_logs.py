"""The diagnostic log: one stream, one shape, for our own events and for those of libraries."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime, timedelta

import pytest
import structlog

from shadowrelay import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored():
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if handler.name == "shadowrelay"]:
        root.removeHandler(handler)
    root.setLevel(level)
    structlog.reset_defaults()


def rows(stream: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_away_from_a_terminal_events_are_json_with_utc_time():
    stream = io.StringIO()
    logs.configure(stream=stream)
    structlog.get_logger("shadowrelay.reception").warning("holder_lost", member="mx2.example.net", queued=3)
    (row,) = rows(stream)
    assert (row["event"], row["level"], row["member"], row["queued"]) == (
        "holder_lost",
        "warning",
        "mx2.example.net",
        3,
    )
    assert row["logger"] == "shadowrelay.reception"
    assert datetime.fromisoformat(row["timestamp"]).utcoffset() == timedelta()


def test_on_a_terminal_events_are_for_people():
    stream = Terminal()
    logs.configure(stream=stream)
    structlog.get_logger().info("node_started")
    assert "node_started" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_traceback_on_a_terminal_shows_no_values():
    stream = Terminal()
    logs.configure(stream=stream)
    password = "Pa55-word"
    try:
        int(password[:0])
    except ValueError:
        structlog.get_logger().exception("delivery_failed")
    assert "Traceback" in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert password not in stream.getvalue()


def test_json_can_be_asked_for_on_a_terminal():
    stream = Terminal()
    logs.configure(format="json", stream=stream)
    structlog.get_logger().info("node_started")
    assert rows(stream)[0]["event"] == "node_started"


def test_what_libraries_say_is_routed_through_as_a_field():
    stream = io.StringIO()
    logs.configure(stream=stream)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    first, second = rows(stream)
    assert (first["event"], first["message"]) == ("library_message", "Started server process [7]")
    assert (second["logger"], second["level"]) == ("asyncio", "error")


def test_libraries_that_tell_of_every_request_are_quiet_unless_debugging():
    stream = io.StringIO()
    logs.configure(stream=stream)
    logging.getLogger("aiosqlite").info("executing")
    assert stream.getvalue() == ""
    logs.configure(level="debug", stream=stream)
    logging.getLogger("aiosqlite").info("executing")
    assert len(rows(stream)) == 1


@pytest.mark.parametrize("name", ["mail.log", "mail.debug"])
def test_what_clients_say_is_never_told_for_passwords_are_among_it(name: str):
    stream = io.StringIO()
    logs.configure(level="debug", stream=stream)
    logging.getLogger(name).warning("can't decode base64: Sesame")
    assert stream.getvalue() == ""
    logging.getLogger(name).error("broken")
    assert len(rows(stream)) == 1


def test_no_variables_are_shown_beside_an_exception():
    stream = io.StringIO()
    logs.configure(format="console", stream=stream)
    password = "Ses" + "ame"
    try:
        raise RuntimeError("broken" if password else "")
    except RuntimeError:
        structlog.get_logger().exception("session_error")
    assert "RuntimeError: broken" in stream.getvalue()
    assert "Sesame" not in stream.getvalue()


def test_events_below_the_level_are_not_written():
    stream = io.StringIO()
    logs.configure(level="warning", stream=stream)
    structlog.get_logger().info("node_started")
    assert stream.getvalue() == ""


def test_an_exception_is_a_field_of_the_one_row():
    stream = io.StringIO()
    logs.configure(stream=stream)
    try:
        raise ValueError("line one\nline two")
    except ValueError:
        structlog.get_logger().exception("delivery_failed")
    (row,) = rows(stream)
    assert "ValueError: line one" in row["exception"]
