from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.wire.xtext import decode_xtext, encode_xtext, is_xtext


@given(st.text())
def test_text_survives_xtext(text: str) -> None:
    assert is_xtext(encode_xtext(text))
    assert decode_xtext(encode_xtext(text)) == text


def test_plus_equals_and_space_are_encoded() -> None:
    assert encode_xtext("a+b=c d") == "a+2Bb+3Dc+20d"


@pytest.mark.parametrize("text", ["a=b", "a b", "+2b", "+", "+2", "ü", "+FF", "a\n"])
def test_malformed_xtext_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_xtext(text)
