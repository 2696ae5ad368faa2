"""Open a session of the engine that was asked for, and close it again."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shadowaudit.engine.classes import Classes, classes
from shadowaudit.engine.gateway import ended_on_failure
from shadowaudit.engine.java import NoJavaError, find_java, shim

SPARK, SAIL = "spark", "sail"

_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()  # with blanks escaped

_CONNECT_PORT, _MASTER_PORT = 15002, 7077  # as Spark has them unless told
_REACHED = 10.0  # seconds until a server has to take a connection

_OPTIONS = "spark.driver.extraJavaOptions"

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # A job's plan is to hand work to Python and take a few rows back: it runs before it would be compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "shadowaudit.engine.daemon",
    # Java only moves blocks here: quickly compiled code serves better than fast code that comes too late.
    _OPTIONS: f"-Dlog4j2.configurationFile={_LOGGING} -XX:TieredStopAtLevel=1",
}


class EngineError(Exception):
    """The engine cannot be used, and what to do."""


@contextmanager
def session(
    engine: str,
    *,
    master: str | None = None,
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
    much: bool = False,
) -> Iterator[Any]:
    """A Spark session. ``engine``: spark, sail (in this process), or the sc:// address of a Connect server.

    ``much``: the work is so much that Spark's classes may be kept after it, if they were not before.
    Under ``spark-submit`` the master is what that command was told. Raises EngineError.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if engine == SPARK:
        yield from _spark(master, memory, dict(conf or {}), much=much)
    elif engine == SAIL:
        yield from _sail()
    elif engine.startswith("sc://"):
        _answers(engine, _CONNECT_PORT)
        opened = _connect(engine)
        try:
            yield opened
        finally:
            opened.stop()
    else:
        raise EngineError(f"no engine {engine!r}: say spark, sail, or sc://HOST:PORT")


def submitted() -> bool:
    """Does ``spark-submit`` run this?"""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_ENV_LOADED" in os.environ


def _spark(master: str | None, memory: str, conf: dict[str, str], *, much: bool) -> Iterator[Any]:
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError("PySpark is not installed: pip install 'shadowrelay[audit]'") from None
    settings, known = {"spark.sql.execution.pythonUDF.arrow.enabled": "true"}, None
    builder = SparkSession.builder.appName("shadowaudit")
    if not submitted():
        if master and master.startswith("spark://"):
            _answers(master, _MASTER_PORT)
        known = _java()
        builder = builder.master(master or "local[*]")
        settings |= _LOCAL | {"spark.driver.memory": memory}
        if known is not None and known.made is not None and not much:
            known = None
        if known is not None:
            settings[_OPTIONS] += f" {known.options}"
    for name, value in (settings | conf).items():
        builder = builder.config(name, value)
    try:
        with ended_on_failure():
            yield from _opened(builder)
            if known is not None and much:
                gateway: Any = SparkContext._gateway
                SparkContext._gateway = SparkContext._jvm = None  # another session starts a Java of its own
                gateway.shutdown()
                known.keep(gateway.proc)
                atexit.register(gc.freeze)  # else all that was loaded is searched for cycles once more
    except BaseException:
        if known is not None:
            known.discard()
        raise


def _opened(builder: Any) -> Iterator[Any]:
    try:
        opened = builder.getOrCreate()
        opened.sparkContext.setLogLevel("ERROR")
    except Exception as problem:
        raise EngineError(
            f"Spark does not start ({_first_line(problem)}): see shadowaudit doctor"
        ) from problem
    try:
        yield opened
    finally:
        _stop(opened)


def _stop(opened: Any) -> None:
    """PySpark would wait for its server of accumulators, which looks once a second whether it shall end."""
    context = opened.sparkContext
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        context._accumulatorServer = None
        server.handle_error = lambda *_: None  # Java may be gone before it looks: that is no news
        threading.Thread(target=server.shutdown, daemon=True).start()
    opened.stop()


def _java() -> Classes | None:
    """Have Spark use a Java that there is. Raises EngineError."""
    import pyspark

    try:
        runtime = find_java().home
    except NoJavaError as problem:
        raise EngineError(str(problem)) from None
    os.environ["JAVA_HOME"] = str(shim(runtime))
    return classes(runtime, Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent))


def _sail() -> Iterator[Any]:
    try:
        from pysail.spark import SparkConnectServer
    except ImportError:
        raise EngineError("Sail is not installed: pip install pysail; or use --engine spark") from None
    os.environ.setdefault("RUST_LOG", "error")  # read when the server starts
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    stopping: list[Callable[[], None]] = [server.stop]
    try:
        host, port = server.listening_address
        opened = _connect(f"sc://{host}:{port}")
        stopping.insert(0, opened.stop)
        yield opened
    except KeyboardInterrupt:
        stopping.clear()  # it would wait for tasks that wait for Python; both end with this process
        raise
    finally:
        for stop in stopping:
            stop()


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


def _connect(address: str) -> Any:
    try:
        from pyspark.sql import SparkSession

        opened = SparkSession.builder.remote(address).create()  # stopped by us: not one that others use
    except Exception as problem:
        raise EngineError(f"{address} does not answer: {_first_line(problem)}") from problem
    return opened


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
