"""XOPERATE, and the records of resubmit requests that it carries: read as they were written, or refused."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spelling import EPOCH, message_ids, names, numbers

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.operating import Act, Scope
from shadowrelay.core.requests import BEGIN, Place, Progress, Request, RequestState, Selector, Skipped
from shadowrelay.wire.json_fields import MOST_TEXT
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xoperate import TooLong, format_act, format_answer, parse_act, parse_answer
from shadowrelay.wire.xshadow import MAX_LINE, Malformed

JOB = "01900000-0000-7000-8000-000000000001"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
trees = st.dictionaries(
    texts,
    st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda one: st.lists(one, max_size=3)),
)
moments = st.integers(0, 10**16).map(lambda micros: EPOCH + timedelta(microseconds=micros))
selectors = st.builds(
    Selector,
    since=moments,
    until=moments,
    next_hops=st.lists(texts.map(NextHop), max_size=3).map(tuple),
    sender=st.none() | texts,
    recipient=st.none() | texts,
    message_id=st.none() | texts,
    network_message_id=st.none() | message_ids,
)
requests = st.builds(
    Request,
    id=message_ids,
    number=numbers.map(lambda n: n % 10**9),
    made_by=names,
    made_at=moments,
    operator=texts,
    reason=texts,
    selector=selectors,
    gone=st.lists(names, max_size=3).map(tuple),
    state=st.sampled_from(RequestState),
    revision=st.integers(1, 10**6),
    changed_by=names,
    changed_at=moments,
)
parts = st.builds(
    Progress,
    request=message_ids,
    node=names,
    owner=names,
    place=st.just(BEGIN) | st.builds(Place, moments, message_ids),
    made=st.integers(0, 10**9),
    skipped=st.dictionaries(st.sampled_from(Skipped), st.integers(0, 10**6)).map(lambda d: tuple(d.items())),
    done=st.booleans(),
    whole=st.booleans(),
)
acts = st.builds(
    Act,
    job=message_ids,
    action=st.from_regex(r"\A[a-z][a-z-]{0,31}\Z"),
    scope=st.sampled_from(Scope),
    operator=texts,
    reason=texts,
    arguments=trees,
)


@given(acts)
def test_an_act_is_read_as_it_was_written_and_fits_into_a_line(act: Act) -> None:
    try:
        text = format_act(act)
    except TooLong:
        return
    assert parse_act(text) == act
    assert len(f"XOPERATE {text}\r\n") <= MAX_LINE
    assert text.isascii()


@given(trees)
def test_an_answer_is_read_as_it_was_written_and_its_lines_are_short(told: dict[str, Any]) -> None:
    lines = format_answer({**told, "long": "x" * 10_000})
    assert parse_answer(lines).told == {**told, "long": "x" * 10_000}
    assert max(len(f"250-2.0.0 {line} {'0' * 16}:{'9' * 18}\r\n") for line in lines) <= MAX_LINE


@given(requests)
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    assert record_from(Request, json.loads(json.dumps(record_told(request)))) == request


@given(selectors)
def test_a_selector_is_read_as_it_was_written(selector: Selector) -> None:
    assert record_from(Selector, json.loads(json.dumps(record_told(selector)))) == selector


@given(parts)
def test_progress_is_read_as_it_was_written(progress: Progress) -> None:
    assert record_from(Progress, json.loads(json.dumps(record_told(progress)))) == progress


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one two three four",
        f"{JOB} request operate",
        f"{JOB} Request operate e30=",
        f"{JOB} request everything e30=",
        f"{JOB} request operate e30=",
        f"{JOB} request operate bm9uZQ==",
        f"{JOB} request operate !!!!",
        f"{JOB} request operate é",
        "not-a-uuid request operate e30=",
        f"{JOB} request operate {'W1tb' * 900}",
    ],
)
def test_what_is_no_act_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_act(text)


@given(st.text(max_size=60))
def test_any_text_is_read_as_an_answer_or_refused(text: str) -> None:
    with contextlib.suppress(Malformed):
        parse_answer([text])


GOOD = {
    "id": JOB,
    "number": 1,
    "made_by": "mx1.example.org",
    "made_at": 1,
    "operator": "ann",
    "reason": "",
    "selector": {"since": 1, "until": 2},
    "state": "running",
    "revision": 1,
    "changed_by": "mx1.example.org",
    "changed_at": 1,
}


def test_the_example_of_a_record_is_one() -> None:
    assert record_from(Request, GOOD).number == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "1"),
        ("number", -1),
        ("number", True),
        ("number", "1"),
        ("made_by", "MX1"),
        ("made_at", 10**18),
        ("made_at", 1.5),
        ("operator", None),
        ("reason", "x" * (MOST_TEXT + 1)),
        ("selector", []),
        ("selector", {"since": 1}),
        ("selector", {"since": 1, "until": 2, "next_hops": "h"}),
        ("selector", {"since": 1, "until": 2, "next_hops": ["h"] * 21}),
        ("selector", {"since": 1, "until": 2, "next_hops": [1]}),
        ("selector", {"since": 1, "until": 2, "network_message_id": "x"}),
        ("gone", ["MX"]),
        ("state", "done"),
        ("revision", 2**60),
    ],
)
def test_a_record_that_a_node_could_not_keep_is_refused(name: str, value: object) -> None:
    with pytest.raises(Malformed):
        record_from(Request, {**GOOD, name: value})


@pytest.mark.parametrize("told", [None, [], {}, {"request": JOB, "skipped": {"why": 1}}])
def test_progress_that_is_none_is_refused(told: object) -> None:
    with pytest.raises(Malformed):
        record_from(Progress, told)
