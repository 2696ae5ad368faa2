"""The Java that PySpark starts: ended with what it was started for, also while it starts.

PySpark itself knows of it only when it has answered. Whoever is interrupted before that would leave it behind
for ever, waiting for somebody to tell where it can be reached.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_LONGEST = 5.0  # seconds to put its temporary files away


@contextmanager
def ended_on_failure() -> Iterator[None]:
    """If what is done with a Spark of this process fails or is interrupted, its Java ends before this does.

    One that was there before, from another session, goes on.
    """
    from pyspark import SparkContext, java_gateway

    module: Any = java_gateway
    popen, launched = module.Popen, []

    def launch(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        # A group of its own: it is a script first, and other processes that tell the script what to start.
        java: subprocess.Popen[Any] = popen(*arguments, **options, process_group=0)
        launched.append(java)
        return java

    module.Popen = launch
    root = logging.getLogger()
    root.addFilter(_no_interrupt)
    try:
        yield
    except BaseException:
        with _undisturbed():
            for java in launched:
                SparkContext._gateway = SparkContext._jvm = None
                _end(java)
        raise
    finally:
        module.Popen = popen
        root.removeFilter(_no_interrupt)


def _no_interrupt(record: logging.LogRecord) -> bool:
    """Py4J logs the traceback of a Ctrl-C, and raises it as well."""
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No Ctrl-C comes in between."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(java: subprocess.Popen[Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(java.pid, number)
        with suppress(subprocess.TimeoutExpired):
            java.wait(_LONGEST)
