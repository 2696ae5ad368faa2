"""What has one copy that can be reached, against messages that are counted one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.at_risk import AwayMember, InTransit, Risk, RiskCause, risks

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
MEMBERS = [ServerName(f"mx{number}.test") for number in range(2, 6)]
HOLDERS = st.lists(st.sampled_from(MEMBERS), max_size=3, unique=True)
A, B = MEMBERS[:2]


def mail(own: Sequence[Sequence[ServerName]] = (), held: Sequence[tuple[ServerName, bool]] = ()) -> InTransit:
    """``own``: the holders of each message of this node. ``held``: the owner of each copy; is it promoted?"""
    return InTransit(
        exposed=sum(not holders for holders in own),
        held_by=Counter(name for holders in own for name in holders),
        together=Counter(tuple(sorted(holders)) for holders in own if len(holders) > 1),
        held_for=Counter(owner for owner, _ in held),
        promoting=Counter(owner for owner, promoting in held if promoting),
    )


def found(*args: object) -> list[Risk]:
    return list(risks(*args, NOW))  # type: ignore[arg-type]


@given(
    st.lists(HOLDERS, max_size=12),
    st.lists(st.tuples(st.sampled_from(MEMBERS), st.booleans()), max_size=12),
    st.dictionaries(st.sampled_from(MEMBERS), st.booleans()),
)
def test_each_message_with_one_copy_counts_once(
    own: list[list[ServerName]], held: list[tuple[ServerName, bool]], away: dict[ServerName, bool]
) -> None:
    gone = [AwayMember(name=name, seen_by=MEMBERS[0] if seen else None) for name, seen in away.items()]
    expected = sum(set(holders) <= away.keys() for holders in own) + sum(
        promoting or away.get(owner) is False for owner, promoting in held
    )
    told = found(mail(own, held), gone)
    assert sum(one.messages for one in told) == expected
    assert all(one.messages > 0 for one in told)
    assert len({(one.cause, one.member) for one in told}) == len(told)


def test_the_owner_is_away_until_its_mail_is_promoted() -> None:
    since, until = NOW - timedelta(minutes=1), NOW + timedelta(hours=2, minutes=59)
    (told,) = found(mail(held=[(A, False)] * 11), [AwayMember(name=A, since=since, promotes_at=until)])
    assert (told.cause, told.messages, told.member) == (RiskCause.OWNER_AWAY, 11, A)
    assert (told.since, told.until) == (since, until)
    assert told.advice == (
        "start mx2.test again, or wait 2 h 59 min: then they are promoted; "
        "if its disk is lost for good: shadowrelay peer retire mx2.test"
    )


def test_nobody_advises_to_retire_whom_this_node_alone_cannot_reach() -> None:
    cut_off = AwayMember(name=A, because="this node reaches no other machine, and may be cut off")
    (told,) = found(mail(held=[(A, False)]), [cut_off])
    assert told.until is None
    assert "retire" not in told.advice
    assert "cut off" in told.advice
    assert not found(mail(held=[(A, False)]), [AwayMember(name=A, seen_by=B)])


def test_a_holder_that_is_away_is_no_second_copy_until_another_is_made() -> None:
    until = NOW + timedelta(minutes=4)
    (told,) = found(mail([[A], [A, B], [B]]), [AwayMember(name=A, loses_at=until)])
    assert (told.cause, told.messages, told.member, told.until) == (RiskCause.HOLDER_AWAY, 1, A, until)
    assert "retire" not in told.advice


def test_a_worker_is_called_by_its_node_when_it_is_to_be_retired() -> None:
    (told,) = found(
        mail(held=[(ServerName("w2.mx2.test"), False)]),
        [AwayMember(name=ServerName("w2.mx2.test"), promotes_at=NOW)],
    )
    assert told.advice.endswith("peer retire mx2.test")
