"""What the scripts beside a unit share, in its namespaces: wait for it, look, stop it, write the result."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

Found = dict[str, object]


def watched(unit: str, port: int, result: Path, look: Callable[[Found], None]) -> None:
    """Look at a unit once its admin interface at ``port`` says that it is ready; then stop it."""
    found: Found = {}
    try:
        ready(port)
        look(found)
        subprocess.run(["systemctl", "stop", unit], check=True)
        found["stopped"] = show(unit)
    except Exception:
        subprocess.run(["systemctl", "status", "--no-pager", "--full", unit], check=False)
        raise
    finally:
        fresh = result.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.rename(result)


def ready(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz/ready").close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def show(unit: str) -> dict[str, str]:
    wanted = "MainPID,ActiveState,SubState,Result,ExecMainStatus,NRestarts"
    done = subprocess.run(
        ["systemctl", "show", unit, "-p", wanted], check=True, capture_output=True, text=True
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def mode(place: Path) -> str:
    return f"{place.stat().st_mode & 0o777:o} {place.owner()}"
