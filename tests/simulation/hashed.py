"""Runs a program under several hash seeds: the order of a set is another one in each process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def said_under(hash_seeds: range, program: str) -> list[str]:
    """What that text of a program prints under each hash seed."""
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in hash_seeds
    ]
