"""Which engine does the work: this machine by itself, unless Spark was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from shadowaudit.cli.progress import Shown
from shadowaudit.engine import pool
from shadowaudit.engine.pool import Pool, without_pandas
from shadowaudit.engine.port import HERE, Engine, EngineError
from shadowaudit.interruption import insisting

AUTO, SPARK = "auto", "spark"


def chosen(asked: str, *, master: str | None, elsewhere: bool, keeping: bool) -> str:
    """here, spark, or a sc:// address. ``elsewhere``: logs lie at a URI. ``keeping``: with ``--state``.

    Raises UsageError.
    """
    if asked == AUTO:
        asked = SPARK if master is not None or elsewhere or _submitted() else HERE
    if asked == HERE and elsewhere:
        raise click.UsageError("--engine here reads directories of this machine: logs at a URI are for spark")
    if asked == HERE and master is not None:
        raise click.UsageError("--master is for --engine spark")
    if keeping and asked != HERE:
        raise click.UsageError(
            "--state keeps on this machine what this machine has read: it takes --engine here, and "
            "directories. On Spark, tables keep what was read: shadowaudit ingest --tables"
        )
    return asked


@contextmanager
def started(
    name: str, shown: Shown, scratch: Path, *, octets: int, master: str | None, memory: str
) -> Iterator[Engine]:
    """That engine, until the context ends. ``scratch``: where it may put what is in between, on this machine.

    ``octets`` of logs are to be read. Raises EngineError.
    """
    with ExitStack() as stack:
        engine: Engine
        if name == HERE:
            shared = stack.enter_context(Pool(cores()))
            if octets > pool.MUCH:
                shared.load()  # beside what this process loads now
            with insisting():  # pyarrow's first look for pandas takes any exception for its absence
                without_pandas()
                from shadowaudit.engine.here import Here
            engine = Here(shared, scratch)
        else:
            with shown.step(f"Starting {'Spark' if name == SPARK else name}"):
                try:
                    from shadowaudit.spark.engine import SparkEngine
                    from shadowaudit.spark.session import session
                except ImportError as missing:
                    raise EngineError(
                        f"--engine {name} cannot be used: {missing}. See shadowaudit doctor"
                    ) from None
                engine = SparkEngine(stack.enter_context(session(name, master=master, memory=memory)))
        shown.tasks = engine.tasks
        yield engine


def _submitted() -> bool:
    """Does ``spark-submit`` run this?"""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_ENV_LOADED" in os.environ


def cores() -> int:
    """How many processes run at a time on this machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
