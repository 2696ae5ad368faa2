"""A plugin of pytest: relay and audit under test are the copies that are meant, or there is no test.

It also brings a profile of hypothesis, by which a property draws alike wherever it runs. Hypothesis has
two of its own. Where CI is set, each try draws the same. Elsewhere, what was found before is tried first,
and what is slow fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import shadowaudit
import shadowrelay

VARIABLE, PROFILE = "MUTANT_SOURCE", "planted"

settings.register_profile(
    PROFILE, derandomize=False, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_configure() -> None:
    meant = os.environ.get(VARIABLE, "")
    for name, package in (("relay", shadowrelay), ("audit", shadowaudit)):
        found = Path(package.__file__).parents[1]
        if str(found) != meant:
            raise pytest.UsageError(f"the {name} is imported from {found} and not from {meant}")
