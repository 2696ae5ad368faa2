"""A good copy takes the place of one that cannot be relied on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, M, ledger_of, message

from shadowrelay.core.decisions import Content, DamagedRow, VerdictKind
from shadowrelay.core.identifiers import Mark
from shadowrelay.core.messages import Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, hold

GIVEN = ShadowCopyOffer(
    message_id=M,
    epoch=1,
    rank=1,
    owner=B,
    owner_database=DB[B],
    mark=Mark(RUN[B], 11),
    received_at=NOW,
    envelope=message().envelope,
    recipients=message().recipients,
    digests=message().digests,
    given_for=A,
)


@pytest.mark.parametrize("settled", [(1,), (1, 2)])
def test_who_gives_the_copy_is_told_what_was_settled_in_rows_that_nobody_believed(
    settled: tuple[int, ...],
) -> None:
    """Nobody else tells it: what it was to hear went with the rows. It would hold its copy until that
    expires.
    """
    on_a = ledger_of(A)
    status = tuple((number, Status.RELAYED) for number in settled)
    on_a.rows[M] = DamagedRow(M, NOW, "the sum of a row differs", status)
    assert on_a.apply(hold(on_a, GIVEN, Content(data=b"x"), Policy(), NOW)) is OfferAnswer.QUEUED
    assert [one.number for one in on_a.copies[M].unsettled] == [n for n in (1, 2) if n not in settled]
    (event,) = on_a.told
    told = event.verdict
    assert (event.addressee, told.kind, told.recipients or (1, 2)) == (DB[B], VerdictKind.DELIVERED, settled)


def test_what_the_giver_knows_to_be_settled_it_is_not_told() -> None:
    on_a = ledger_of(A)
    on_a.rows[M] = DamagedRow(M, NOW, "the sum of a row differs", ((1, Status.RELAYED),))
    first, second = message().recipients
    given = replace(GIVEN, recipients=(replace(first, status=Status.RELAYED), second))
    on_a.apply(hold(on_a, given, Content(data=b"x"), Policy(), NOW))
    assert not on_a.told
