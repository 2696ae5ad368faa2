"""The codec of milter: whatever a filter says is read, or is nonsense, and is read as others mean it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.smtp.filters import codec
from shadowrelay.smtp.filters.codec import (
    Agreed,
    BodyPart,
    FieldEdit,
    Nonsense,
    Quarantined,
    RecipientAdded,
    RecipientRemoved,
    Ruling,
    Said,
    SenderChanged,
)
from shadowrelay.wire.replies import Reply
from tests.neighbours import milter
from tests.neighbours.milter import NEEDED


@given(
    st.binary(max_size=60)
    | st.builds(bytes.__add__, st.sampled_from([b"y", b"m", b"i", b"h", b"O", b"+"]), st.binary())
)
def test_whatever_a_filter_says_is_an_answer_or_nonsense(data: bytes) -> None:
    try:
        found = codec.answer(data)
    except Nonsense:
        return
    if isinstance(found, FieldEdit):  # it stays one field
        lines = found.value.split(b"\r\n")
        assert all(line[:1] in (b" ", b"\t") for line in lines[1:])
        assert not any(octet in line for line in lines for octet in (b"\r", b"\n", b"\0"))
    if isinstance(found, Ruling) and found.reply is not None:
        assert 400 <= found.reply.code < 600
        assert found.reply.code != 421


def packed(message: Any) -> bytes:
    """As kilter-protocol packs it, without the length."""
    buffer = milter.SimpleBuffer(1 << 12)
    message.pack(buffer)
    data = buffer[:].tobytes()
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return bytes(data[4:])


@NEEDED
@pytest.mark.parametrize(
    ("made", "read"),
    [
        (lambda said: said.Continue(), Ruling(Said.CONTINUE)),
        (lambda said: said.Discard(), Ruling(Said.DISCARD)),
        (lambda said: said.Progress(), Ruling(Said.PROGRESS)),
        (lambda said: said.Skip(), Ruling(Said.REST_SKIPPED)),
        (
            lambda said: said.ReplyCode(b"550 5.1.1 No\0"),
            Ruling(Said.REPLY, Reply(550, "5.1.1", "No")),
        ),
        (lambda said: said.AddHeader("X", b"a\n b"), FieldEdit(b"X", b"a\r\n b")),
        (lambda said: said.InsertHeader(0, "X", b"a"), FieldEdit(b"X", b"a", 0, insert=True)),
        (lambda said: said.ChangeHeader(2, "X", b""), FieldEdit(b"X", b"", 2)),
        (lambda said: said.ReplaceBody(b"a\0b"), BodyPart(b"a\0b")),
        (lambda said: said.AddRecipient("<a@b.test>"), RecipientAdded("<a@b.test>")),
        (lambda said: said.AddRecipientPar("<a@b.test>", "NOTIFY=NEVER"), RecipientAdded("<a@b.test>")),
        (lambda said: said.RemoveRecipient("<a@b.test>"), RecipientRemoved("<a@b.test>")),
        (lambda said: said.ChangeSender("<a@b.test>", "X=1"), SenderChanged("<a@b.test>")),
        (lambda said: said.Quarantine("odd"), Quarantined("odd")),
        (
            lambda said: said.Negotiate(6, said.ActionFlags(1), said.ProtocolFlags(0)),
            Agreed(codec.May.ADD_FIELDS, codec.Not(0)),
        ),
    ],
)
def test_what_another_implementation_packs_is_read(made: Any, read: Any) -> None:
    assert codec.answer(packed(made(milter.said))) == read


@pytest.mark.parametrize(
    ("version", "may", "is_not"), [(1, 0, 0), (7, 0, 0), (6, 0x100, 0), (6, 0, 0x800)], ids=str
)
def test_a_filter_agrees_to_what_was_offered_and_to_nothing_else(version: int, may: int, is_not: int) -> None:
    with pytest.raises(Nonsense):
        codec.answer(b"O" + b"".join(one.to_bytes(4, "big") for one in (version, may, is_not)))
