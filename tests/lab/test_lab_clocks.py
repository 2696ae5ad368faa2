"""What libfaketime keeps of a process, and leaves behind when that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from shadowlab import clocks


def test_what_is_kept_of_processes_that_are_gone_is_swept_and_nothing_else(tmp_path: Path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # gone, and nobody has noticed yet
    since = time.time() - 60
    for pid in (ended.pid, os.getpid()):
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (tmp_path / name).touch()
    (tmp_path / f"somebody_{ended.pid}").touch()
    clocks.sweep(time.time() + 60, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5, "they are older"
    clocks.sweep(since, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"faketime_shm_{os.getpid()}", f"sem.faketime_sem_{os.getpid()}", f"somebody_{ended.pid}"]
    )
    ended.wait()
