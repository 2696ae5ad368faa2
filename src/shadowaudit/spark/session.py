"""A session of Spark: on this machine, on a cluster, under ``spark-submit``, or of a Connect server."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from shadowaudit.engine.port import EngineError
from shadowaudit.interruption import put_off
from shadowaudit.spark.java import NoJavaError, find_java, shim

SPARK = "spark"

_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()

_UTC = {"spark.sql.session.timeZone": "UTC"}  # as the logs
_QUIET = {
    "spark.ui.showConsoleProgress": "false",  # it writes over what is shown; commands have their own
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING}",  # errors only
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",  # a host name may lead to an address that nothing listens at
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",  # a port that anybody on this machine could look into
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),  # 200 unless told: those are for clusters
}
_COMMAND = {
    "spark.driver.extraJavaOptions": " ".join(
        (
            _QUIET["spark.driver.extraJavaOptions"],
            "-XX:TieredStopAtLevel=1",  # a job of minutes: fast code costs more to make than it saves
            "-XX:+UseParallelGC",  # nobody waits for single answers, so nothing is collected beside the work
        )
    ),
}
_CONNECT_PORT, _MASTER_PORT = 15002, 7077  # as Spark has them unless told
_REACHED = 10.0  # seconds until a server has to take a connection


def open_session(conf: Mapping[str, str]) -> SparkSession:
    """The session that there is, or a new one. Raises NoJavaError.

    Under ``spark-submit`` it is the one of that command. Spark's tasks have this Python and its packages.
    """
    builder = SparkSession.builder.appName("shadowaudit")
    settings = dict(conf)
    if not submitted() and SparkSession.getActiveSession() is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = str(shim(find_java().home))
        settings = {"spark.master": "local[*]"} | _UTC | _QUIET | settings
        if _is_here(settings["spark.master"]):
            settings = _LOCAL | settings
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _is_here(master: str) -> bool:
    """Can all executors reach this machine by its loopback address?"""
    return master.startswith("local") or urlsplit(master).hostname in ("127.0.0.1", "localhost")


def submitted() -> bool:
    """Does ``spark-submit`` run this?"""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_ENV_LOADED" in os.environ


@contextmanager
def session(
    asked: str,
    *,
    master: str | None = None,
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """A session for one command, stopped at its end. ``asked``: ``spark``, or the sc:// address of a server.

    ``master`` and ``memory`` (as Java writes it) are for a Spark that this process starts; under
    ``spark-submit`` they are what that command was told. Ctrl-C has Spark drop its jobs. Raises EngineError.
    """
    before = signal.getsignal(signal.SIGINT)
    for logger in _loggers():
        logger.addFilter(_not_py4j)
    opened = _connected(asked) if asked.startswith("sc://") else _started(master, memory, dict(conf or {}))
    try:
        # Spark's own handler speaks with Java in the middle of another word with it, and that fails loudly.
        signal.signal(signal.SIGINT, before)
        yield opened
    except KeyboardInterrupt:
        with suppress(Exception):
            opened.interruptAll()
        raise
    finally:
        opened.stop()
        signal.signal(signal.SIGINT, before)
        for logger in _loggers():
            logger.removeFilter(_not_py4j)


def _loggers() -> list[logging.Logger]:
    """Py4J's, and the root logger, which it uses as well. A filter is for what a logger is told itself."""
    return [logging.getLogger(name) for name in ("", "py4j.java_gateway", "py4j.clientserver")]


def _not_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs what a Ctrl-C does to its words with Java, and raises it as well."""
    return record.module not in ("java_gateway", "clientserver")


def _started(master: str | None, memory: str, conf: dict[str, str]) -> Any:
    settings: dict[str, str] = {}
    if not submitted():
        settings |= _COMMAND | {"spark.driver.memory": memory, "spark.master": master or "local[*]"}
        if master and master.startswith("spark://"):
            _answers(master, _MASTER_PORT)
    try:
        with put_off():  # Java that is half started would stay
            opened = open_session(settings | conf)
            opened.sparkContext.setLogLevel("ERROR")
    except KeyboardInterrupt:
        if active := SparkSession.getActiveSession():
            active.stop()
        raise
    except NoJavaError as problem:
        raise EngineError(str(problem)) from None
    except Exception as problem:
        raise EngineError(
            f"Spark does not start ({_first_line(problem)}): see shadowaudit doctor"
        ) from problem
    return opened


def _connected(address: str) -> Any:
    _answers(address, _CONNECT_PORT)
    try:
        return SparkSession.builder.remote(address).create()  # stopped by us: not one that others use
    except Exception as problem:
        raise EngineError(f"{address} does not answer: {_first_line(problem)}") from problem


def _answers(address: str, port: int) -> None:
    """One of its hosts, at least: PySpark would try again for minutes. Raises EngineError."""
    problem: Exception = ValueError("no host in it")
    for host in urlsplit(address).netloc.split(","):
        try:
            told = urlsplit(f"//{host}")
            socket.create_connection((told.hostname or "", told.port or port), _REACHED).close()
        except (OSError, ValueError) as error:
            problem = error
        else:
            return
    raise EngineError(f"{address} does not answer: {_first_line(problem)}")


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
