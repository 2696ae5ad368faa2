"""CR and LF in pairs, and lines that begin with a dot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.wire.line_ends import all_paired, has_dot_line


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b".", b"M", b"\x8d"]), max_size=12).map(b"".join))
def test_pairs_are_all_there_is_when_nothing_is_left_without_them(data: bytes) -> None:
    rest = data.replace(b"\r\n", b"x")
    assert all_paired(data) == (b"\r" not in rest and b"\n" not in rest)


@pytest.mark.parametrize("data", [b"\n\r", b"a\nb\rc", b"\r", b"\n", b"a\r\n\r", b"\r\r\n\n"])
def test_as_many_of_one_as_of_the_other_are_not_yet_pairs(data: bytes) -> None:
    assert not all_paired(data)


@given(st.lists(st.sampled_from([b"\r\n", b".", b"a"]), max_size=12).map(b"".join))
def test_a_dot_line_is_one_that_begins_after_a_line_end(data: bytes) -> None:
    assert has_dot_line(data) == (b"\r\n." in data)
