"""Disks that lose power come back as they were, whoever else looks at the machine's mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shadowlab.disks import lacking, mounted
from shadowrelay.database.opening import sync_directory

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _root() -> None:
    if reason := lacking() or next(
        (f"no {tool}" for tool in ("unshare", "e2fsck") if not shutil.which(tool)), ""
    ):
        pytest.skip(reason)


def written(place: Path, name: str, count: int) -> None:
    """Files whose beginning and end are both on the disk, one after the other."""
    for number in range(count):
        opened = place / f"{name}-{number}.open"
        with opened.open("wb") as file:
            file.write(os.urandom(3000))
            file.flush()
            os.fsync(file.fileno())
        opened.rename(place / f"{name}-{number}")
        if number % 3 == 0:
            (place / f"{name}-{number}").unlink()
        sync_directory(place)


def test_a_disk_that_another_mount_namespace_has_too_is_whole_after_a_power_cut(tmp_path: Path):
    elsewhere = []
    image = tmp_path / "image"
    try:
        with mounted(image, tmp_path / "place", 256 << 20) as disk:
            for number in range(8):
                written(disk.place, f"before-{number}", 60)
                elsewhere.append(
                    subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", "100"])
                )
                written(disk.place, f"after-{number}", 60)
                disk.cut()
                disk.restore()
            written(disk.place, "last", 60)
            os.sync()
            while elsewhere:
                one = elsewhere.pop()
                one.kill()
                one.wait()
        found = subprocess.run(["e2fsck", "-fn", str(image)], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout
    finally:
        for one in elsewhere:
            one.kill()
            one.wait()
