"""Spark's classes are kept for the next start, and a start without them is one as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from shadowaudit.engine.classes import classes
from shadowaudit.engine.java import shim


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"")
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return home


def writing(target: Path) -> subprocess.Popen[bytes]:
    """Java's part: it writes when its standard input ends."""
    return subprocess.Popen(["sh", "-c", f"cat && echo classes > '{target}'"], stdin=subprocess.PIPE)


def test_what_java_writes_at_its_end_is_used_by_the_next_one(java: Path, tmp_path: Path) -> None:
    known = classes(java, tmp_path / "spark")
    assert known is not None
    assert known.made is not None
    assert str(known.made) in known.options
    stale = known.kept.with_name("classes-0123.jsa")
    stale.write_bytes(b"")
    os.utime(stale, (0, time.time() - 100 * 86_400))
    known.keep(writing(known.made))
    again = classes(java, tmp_path / "spark")
    assert again is not None
    assert again.made is None
    assert str(known.kept) in again.options
    assert not stale.exists()


def test_of_other_classes_only_those_used_last_stay(java: Path, tmp_path: Path) -> None:
    known = classes(java, tmp_path / "spark")
    assert known is not None
    assert known.made is not None
    others = [known.kept.with_name(f"classes-{number}.jsa") for number in range(4)]
    for age, path in enumerate(others):
        path.write_bytes(b"")
        os.utime(path, (0, time.time() - age * 60))
    known.keep(writing(known.made))
    assert sorted(known.kept.parent.iterdir()) == sorted([known.kept, others[0]])


def test_what_was_made_for_a_java_that_is_gone_goes_when_another_is_made(java: Path, tmp_path: Path) -> None:
    gone, base = tmp_path / "gone", tmp_path / "shims"
    base.mkdir()
    for home in (gone, java):
        home.mkdir(exist_ok=True)
        (home / "release").write_text('JAVA_VERSION="21"\n', "utf-8")
    first = shim(gone, base)
    shutil.rmtree(gone)
    assert [*base.iterdir()] == [first]
    second = shim(java, base)
    assert [*base.iterdir()] == [second]


def test_classes_of_another_java_or_spark_are_not_used(java: Path, tmp_path: Path) -> None:
    known = classes(java, tmp_path / "spark")
    assert known is not None
    assert known.made is not None
    known.keep(writing(known.made))
    (tmp_path / "spark" / "jars").rename(tmp_path / "spark" / "old")
    (tmp_path / "spark" / "jars").mkdir()
    other = classes(java, tmp_path / "spark")
    assert other is not None
    assert other.made is not None


def test_a_java_that_writes_nothing_leaves_nothing(java: Path, tmp_path: Path) -> None:
    known = classes(java, tmp_path / "spark")
    assert known is not None
    assert known.made is not None
    known.keep(subprocess.Popen(["true"], stdin=subprocess.PIPE))
    assert not list(known.kept.parent.iterdir())


def test_a_java_that_keeps_no_classes_is_not_asked_to(java: Path, tmp_path: Path) -> None:
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert classes(java, tmp_path / "spark") is None
