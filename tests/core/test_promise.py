"""The page of rules: each names functions that keep it, and they are there."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from shadowrelay import core

RULES = re.findall(r"^    (\d+)\. (.*?)(?=^    \d+\. |^\S|\Z)", core.__doc__ or "", re.MULTILINE | re.DOTALL)
"""Number and text of each."""


def test_the_rules_are_numbered():
    assert [int(number) for number, _ in RULES] == list(range(1, len(RULES) + 1))
    assert len(RULES) >= 20


@pytest.mark.parametrize(("number", "text"), RULES, ids=[number for number, _ in RULES])
def test_each_rule_names_functions_that_are_there(number: str, text: str):
    named = re.findall(r"``([\w.]+)``", text)
    assert named, f"rule {number} names nothing"
    for name in named:
        module, _, function = name.rpartition(".")
        assert callable(getattr(import_module(f"shadowrelay.core.{module}"), function)), name
