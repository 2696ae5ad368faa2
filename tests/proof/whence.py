"""A plugin of pytest: relay and audit under test are the copies that are meant, or there is no test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import shadowaudit
import shadowrelay

VARIABLE = "MUTANT_SOURCE"


def pytest_configure() -> None:
    meant = os.environ.get(VARIABLE, "")
    for name, package in (("relay", shadowrelay), ("audit", shadowaudit)):
        found = Path(package.__file__).parents[1]
        if str(found) != meant:
            raise pytest.UsageError(f"the {name} is imported from {found} and not from {meant}")
