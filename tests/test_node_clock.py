"""By what name a node knows this start of the machine."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from shadowrelay import node_clock

HIDDEN = Path("/proc/nowhere/boot_id")
SHOWN = "3e8cc4e2-7d0c-4a1c-9c88-6a2d8f2d1b0e"


@pytest.fixture
def started():
    """Asked again each time, as by a process of its own."""
    return node_clock._boot_id.__wrapped__


def test_the_kernels_name_counts_before_what_the_environment_says(tmp_path, monkeypatch, started):
    shown = tmp_path / "boot_id"
    shown.write_text(SHOWN + "\n")
    monkeypatch.setattr(node_clock, "_BOOT_ID", shown)
    monkeypatch.setenv(node_clock.TOLD_BOOT_ID, "another")
    assert UUID(started()) == UUID(SHOWN)


def test_where_proc_is_hidden_the_unit_tells_the_same_name(monkeypatch, started):
    monkeypatch.setattr(node_clock, "_BOOT_ID", HIDDEN)
    monkeypatch.setenv(node_clock.TOLD_BOOT_ID, UUID(SHOWN).hex)
    assert started() == UUID(SHOWN).hex


def test_a_start_that_nobody_names_is_like_no_other(monkeypatch, started):
    monkeypatch.setattr(node_clock, "_BOOT_ID", HIDDEN)
    monkeypatch.delenv(node_clock.TOLD_BOOT_ID, raising=False)
    assert started() != started()
