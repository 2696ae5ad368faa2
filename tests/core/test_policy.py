"""Every tunable says what it is for, and which values it may have."""

from __future__ import annotations

from dataclasses import Field, fields
from datetime import timedelta
from typing import Any

import pytest

from shadowrelay.core.policy import Policy


@pytest.mark.parametrize("tunable", fields(Policy), ids=lambda field: field.name)
def test_a_tunable_has_a_line_of_text_and_a_default_inside_its_range(tunable: Field[Any]) -> None:
    told = tunable.metadata
    assert told["doc"].endswith(".")
    assert "\n" not in told["doc"]
    assert told["source"] in {"Exchange", "ours"}
    if isinstance(tunable.default, timedelta) or type(tunable.default) is int:
        assert told["least"] <= tunable.default <= told["most"]
        assert type(told["least"]) is type(told["most"]) is type(tunable.default)
