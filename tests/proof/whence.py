"""A plugin of pytest: the relay under test is the copy that it is meant to be, or there is no test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import shadowrelay

VARIABLE = "MUTANT_SOURCE"


def pytest_configure() -> None:
    meant = os.environ.get(VARIABLE, "")
    found = Path(shadowrelay.__file__).parents[1]
    if str(found) != meant:
        raise pytest.UsageError(f"the relay is imported from {found} and not from {meant}")
