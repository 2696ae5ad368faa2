"""Makes the helper modules of this directory, and those for SMTP, importable from every test.

Whoever starts the tests in the background may have told them to ignore SIGINT; tests about Ctrl-C, and the
processes that they start, are to have it as on a terminal.

``--turn N/M``: only one in M of the collected tests, others for another N. Continuous integration runs the
slow tests by turns. It is no environment variable: a node that a test starts would refuse an unknown setting.

``@pytest.mark.sampled(N)``: one in N of the cases of a test is quick, and the others are slow.
"""

from __future__ import annotations

import signal
import sys
import threading
import zlib
from pathlib import Path

import pytest

# The last one is for the package tests.neighbours.
for folder in ("core", "smtp", "wire", "admin", "corpus", "e2e", ".."):
    sys.path.append(str(Path(__file__).parent / folder))

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", metavar="N/M", help="only one in M of the tests, others for another N")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (sampled := item.get_closest_marker("sampled")) and _drawn(item, *sampled.args):
            item.add_marker("slow")
    if not (turn := config.getoption("turn")):
        return
    number, _, of = turn.partition("/")
    drawn = [item for item in items if _drawn(item, int(of)) == int(number) % int(of)]
    config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
    items[:] = drawn


def _drawn(item: pytest.Item, of: int) -> int:
    """Which of so many shares a test is in: the same in each run."""
    return zlib.crc32(item.nodeid.encode()) % of
