from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab


def demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shadowlab", "demo", *options],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_demonstration_loses_a_node_and_no_message(tmp_path: Path):
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert re.search(r"acknowledged 16, delivered 16, lost 0, duplicates 0\Z", verdict)
    assert re.search(r"mx\d owns it \(epoch 2\)", done.stdout)
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_disk_with_all_workers_of_a_node_is_lost_and_the_audit_of_the_node_proves_that_no_mail_was(
    tmp_path: Path,
):
    lab = tmp_path / "lab"
    done = demo(tmp_path, "--workers", "2", "--dir", str(lab), "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"acknowledged 16, delivered 16, lost 0, duplicates 0", done.stdout)
    assert len(re.findall(r"database \S+ is gone", done.stdout)) == 2
    lost = ["--lost", "mx1.lab.test"]
    audit = subprocess.run(
        [sys.executable, "-m", "shadowaudit", "verify", str(lab / "tracking"), *lost, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert audit.returncode == 0, audit.stdout + audit.stderr
    verdict = json.loads(audit.stdout)
    assert (verdict["nodes"], verdict["workers"], verdict["strength"]) == (3, 6, "logs")
    assert len(verdict["unprovable"]) == 2


def test_the_demonstration_wants_a_directory_of_its_own(tmp_path: Path):
    (tmp_path / "lab.json").write_text("{}")
    done = demo(tmp_path, "--dir", str(tmp_path))
    assert done.returncode == 1
    assert "its own directory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["lab.json"]
