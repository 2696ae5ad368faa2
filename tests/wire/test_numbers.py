"""Any number in any argument of a member is read within bounds, or is an error of its line, and never breaks
what is computed from it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shadowrelay.core.jobs import Filter, JobProgress
from shadowrelay.core.policy import Policy
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.members.answering import _received_at
from shadowrelay.wire import hops, xoperate, xqdiscard, xshadow
from shadowrelay.wire.announcements import parse_signed
from shadowrelay.wire.json_fields import Malformed
from shadowrelay.wire.records import record_from

NOW = datetime(2026, 11, 28, tzinfo=UTC)
MESSAGE = "01900000-0000-7000-8000-000000000001"
DATABASE = "6f0d7a3e-0000-4000-8000-000000000001"
ONE = "00112233445566aa"
DIGEST = "xxh3-128:00112233445566778899aabbccddeeff"

LINES: list[tuple[Callable[[str], object], str]] = [
    (xshadow.parse_greeting, f"mx1.example.org {DATABASE} {ONE}:# {ONE}@# KNOWN={ONE} VERSION=#"),
    (xshadow.parse_offer, f"{MESSAGE};#;#;{ONE}:#;#;{DIGEST}"),
    (xshadow.parse_offer, f"{MESSAGE};#;#;{ONE}:#;#"),
    (xshadow.parse_origin, f"{MESSAGE};#"),
    (xshadow.parse_fork, "#;inside"),
    (xshadow.parse_fork, "#;inside;delivered@#"),
    (xshadow.parse_fork, "#;inside;suspended:#@#"),
    (xshadow.parse_fork, "#;inside;resumed@#"),
    (xqdiscard.parse_query, f"# AT={ONE}:# AFTER={ONE}:# CHECK={MESSAGE};#;#,{MESSAGE};#;damaged"),
    (xqdiscard.parse_query, f"# REVOKE={MESSAGE};#;# SEEN=mx1;{DATABASE};{ONE}:#"),
    (xqdiscard.parse_query, f"# CLAIM=mx1;{DATABASE};heartbeat-lost,{MESSAGE};#;#"),
    (xqdiscard.parse_query, f"# FETCH={MESSAGE};#;{DIGEST}"),
    (xqdiscard.parse_line, f"# {MESSAGE} # delivered=failed@# #-#"),
    (xqdiscard.parse_line, f"# {MESSAGE} # suspended=#@# *"),
    (xqdiscard.parse_line, f"# {MESSAGE} # resumed=@# #"),
    (xqdiscard.parse_line, f"- {MESSAGE} # superseded=# *"),
    (hops.parse_fork, "#"),
    (hops.parse_query, f"# AFTER={ONE}:#"),
    (hops.parse_line, f"# {MESSAGE} 1 delivered #-#"),
]

EDGES = [0, 1, 999_999, 1_000_001, 2**31, 2**53 + 1, 2**63, 10**17, 10**18 - 1, 10**18, 10**40, 10**5000]
_YEARS = [int(year * 31_556_952_000) for year in (1, 100, 999, 1000, 1001, 2000, 2026, 7029, 8029, 9998)]
numbers = st.one_of(
    st.sampled_from([*EDGES, *_YEARS]),
    st.integers(0, 10**20),
    st.integers(-(10**6), 10**15),
)


def spelt(number: int) -> str:
    """As text, also where Python's own limit of digits is passed."""
    return str(number) if abs(number) < 10**100 else "1" + "0" * 5000


def used(value: object) -> None:
    """Whatever was read can be counted with as a node does: times with what a policy adds, numbers in SQL."""
    if isinstance(value, datetime) and value.year < 9999:
        assert value + timedelta(days=40_000) > value - timedelta(days=400)
    elif isinstance(value, timedelta):
        assert NOW - value < NOW + timedelta(seconds=1)
    elif isinstance(value, int):
        assert 0 <= value < 2**63
    elif is_dataclass(value):
        for one in fields(value):
            used(getattr(value, one.name))
    elif isinstance(value, tuple):
        for one in value[:100]:
            used(one)


@pytest.mark.parametrize(("parse", "line"), LINES, ids=[line for _, line in LINES])
@given(data=st.data())
def test_any_number_in_a_line_is_within_bounds_or_an_error_of_that_line(
    parse: Callable[[str], object], line: str, data: st.DataObject
) -> None:
    said = re.sub("#", lambda _: spelt(data.draw(numbers)), line)
    with suppress(Malformed):
        used(parse(said))


@given(numbers)
@example(2100 * 31_556_952_000)
@example(31_556_952_000_000)
@example(31_556_952_000_001)
def test_a_copy_of_any_age_has_a_time_of_reception_or_is_refused(age: int) -> None:
    try:
        offer = xshadow.parse_offer(f"{MESSAGE};1;1;{ONE}:0;{spelt(age)};{DIGEST}")
    except Malformed:
        assert age < 0 or age > 31_556_952_000_000
        return
    assert 0 <= age <= 31_556_952_000_000
    received = _received_at(offer, NOW)
    assert received <= NOW
    used(received + max(v for v in vars_of(Policy()) if isinstance(v, timedelta)))


def vars_of(policy: Policy) -> list[object]:
    return [getattr(policy, one.name) for one in fields(policy)]


@given(st.timedeltas(min_value=timedelta(0)))
def test_what_this_node_says_of_an_age_can_be_read(age: timedelta) -> None:
    offer = xshadow.parse_offer(f"{MESSAGE};1;1;{ONE}:0;0;{DIGEST}")
    said = xshadow.format_offer(replace(offer, age=age))
    assert xshadow.parse_offer(said).age == min(age // timedelta(milliseconds=1), 31_556_952_000_000) * (
        timedelta(milliseconds=1)
    )


RECORDS: list[tuple[type[Any], dict[str, Any]]] = [
    (
        Request,
        {
            "id": MESSAGE, "number": "#", "made_by": "mx1", "made_at": "#", "operator": "o", "reason": "r",
            "selector": {"since": "#", "until": "#"}, "gone": [], "state": "running", "revision": "#",
            "changed_by": "mx1", "changed_at": "#",
        },
    ),
    (
        Progress,
        {
            "request": MESSAGE, "node": "mx1", "owner": "mx1", "at": "#", "after": "", "made": "#",
            "skipped": {}, "done": False, "whole": False,
        },
    ),
    (Filter, {"older": "#", "younger": "#", "larger": "#", "smaller": "#"}),
    (
        JobProgress,
        {
            "job": MESSAGE, "node": "mx1", "after": "", "did": "#", "late": "#", "waiting": "#",
            "pending": "#", "done": False, "closed": False, "step": "#", "since": "#",
        },
    ),
    (
        Suspension,
        {
            "id": MESSAGE, "next_hop": "h", "suspended": True, "until": "#", "spans": [["#", "#"]],
            "revision": "#", "operator": "o", "reason": "r", "changed_by": "mx1", "changed_at": "#",
        },
    ),
    (
        Switch,
        {
            "id": MESSAGE, "name": "n", "value": True, "against": False, "revision": "#", "operator": "o",
            "reason": "r", "changed_by": "mx1", "changed_at": "#",
        },
    ),
    (
        Switch,
        {
            "id": MESSAGE, "name": "n", "value": "#", "against": None, "revision": "#", "operator": "o",
            "reason": "r", "changed_by": "mx1", "changed_at": "#",
        },
    ),
]  # fmt: skip

odd = st.one_of(
    numbers, numbers.map(lambda n: -n), st.floats(), st.booleans(), st.none(), st.text(max_size=3)
)


@pytest.mark.parametrize(("kind", "record"), RECORDS, ids=[kind.__name__ for kind, _ in RECORDS])
@given(data=st.data())
def test_any_number_in_a_record_is_within_bounds_or_malformed(
    kind: type[Any], record: dict[str, Any], data: st.DataObject
) -> None:
    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {name: filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [filled(one) for one in value]
        return data.draw(odd) if value == "#" else value

    with suppress(Malformed):
        used(record_from(kind, filled(record)))


@pytest.mark.parametrize("number", ["1e400", "-1", "1" * 5000, "1.5", "NaN", "Infinity", "true", str(2**70)])
def test_numbers_that_json_can_spell_and_nobody_can_use_are_malformed(number: str) -> None:
    text = f'{{"operator": "o", "reason": "r", "arguments": {{"n": {number}}}}}'
    encoded = base64.urlsafe_b64encode(text.encode()).decode()
    with suppress(Malformed):
        xoperate.parse_act(f"{MESSAGE} act node {encoded}")
    with pytest.raises(Malformed):
        parse_signed(json.dumps({"announcement": {}, "signature": ""}).replace("{}", text))
    with pytest.raises(Malformed):
        record_from(Filter, {"older": json.loads(number)} if len(number) < 4000 else {"older": 10**4000})
