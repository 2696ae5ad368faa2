"""Suites of real clients, unchanged, at nodes with a filter in front: rspamd, which reads every
octet, and changes nothing of what local clients send for other domains than its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import test_clients
import test_neighbours_dovecot
import test_neighbours_floods
import test_neighbours_postfix_behind
import test_neighbours_postfix_in_front
import test_neighbours_swaks
import test_odd_messages
from running_lab import INSIDE, RunningLab

from shadowlab.ports import free_ports
from tests.neighbours import dovecot, postfix
from tests.neighbours.rspamd import NEEDED, DkimKey, Instance, rspamd, started

SUITES = (
    test_clients,
    test_neighbours_dovecot,
    test_neighbours_floods,
    test_neighbours_postfix_behind,
    test_neighbours_postfix_in_front,
    test_neighbours_swaks,
    test_odd_messages,
)
tls = test_neighbours_swaks.tls

for suite in SUITES:
    for name, each in list(vars(suite).items()):
        if name.startswith("test_") and callable(each) and "lab" in each.__annotations__:
            assert name not in globals(), name
            globals()[name] = each

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    NEEDED,
    pytest.mark.skipif(dovecot.missing() is not None, reason=str(dovecot.missing())),
    pytest.mark.skipif(
        not all(map(shutil.which, ("swaks", "smtp-source"))) or postfix.missing() is not None,
        reason="swaks or postfix is missing (apt-get install swaks postfix)",
    ),
]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Instance]:
    (port,) = free_ports(1)
    with started(rspamd(tmp_path, port, DkimKey(tmp_path), actions="reject = 100000;")) as instance:
        yield instance


@pytest.fixture
def lab(lab: RunningLab, asked: Instance, monkeypatch: pytest.MonkeyPatch) -> RunningLab:
    """Whose nodes ask the filter, whatever else a test sets."""
    monkeypatch.setattr(lab, "up", partial(lab.up, f"receive.default.filters.own.address={asked.address}"))
    return lab


def test_these_nodes_take_nothing_without_their_filter(lab: RunningLab, asked: Instance) -> None:
    lab.up()
    lab.send()
    asked.kill()
    assert not lab.offer(to="mx1", recipients=(INSIDE,))
    lab.verify()
