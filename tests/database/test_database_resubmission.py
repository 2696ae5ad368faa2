"""What a selector finds in Safety Net: SQL says the same as plain Python."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opened import DATABASE, NOW, OTHER, OTHER_DATABASE, OWN, SECOND

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.identifiers import Incarnation, MessageId, NextHop, RequestId
from shadowrelay.core.messages import Copy, Damage, Envelope, Recipient, Role, Stage, Status
from shadowrelay.core.requests import Place, Selector
from shadowrelay.database.ledger import SqlLedger
from tests.simulation.memory_ledger import MemoryLedger, State, _connect, _empty_database

TIMES = st.one_of(st.none(), st.integers(0, 6).map(lambda seconds: NOW + seconds * SECOND))
ADDRESSES = st.sampled_from(
    ["a@x.test", "A@X.test", "b@x.test", "ä@x.test", "Ä@X.TEST", "a@y.x.test", "a@ä.test", ""]
)
HOPS = st.sampled_from(["mbx1", "mbx2", "out"]).map(NextHop)
RECIPIENTS = st.lists(
    st.builds(
        lambda address, hop, status, at: (address, hop, status, None if status is Status.READY else at),
        ADDRESSES,
        HOPS,
        st.sampled_from(Status),
        TIMES,
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def copies(draw: st.DrawFn) -> list[Copy]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        held = draw(st.booleans())
        envelope = Envelope(
            sender=draw(ADDRESSES),
            size=draw(st.integers(0, 9)),
            message_id=draw(st.sampled_from(["<1@x>", "<2@x>"])),
        )
        made = [
            Recipient(at, one[0], one[1], status=one[2], settled_at=one[3])
            for at, one in enumerate(draw(RECIPIENTS), 1)
        ]
        found.append(
            Copy(
                id=MessageId(f"01900000-0000-7000-8000-{number:012x}"),
                epoch=1,
                rank=0,
                role=Role.SHADOW if held else Role.PRIMARY,
                stage=draw(st.sampled_from([Stage.SAFETY_NET, Stage.SAFETY_NET, Stage.QUEUED])),
                owner=OTHER if held else OWN,
                owner_database=OTHER_DATABASE if held else DATABASE,
                offered_in=Incarnation("f" * 16),
                envelope=envelope,
                recipients=tuple(made),
                received_at=NOW,
                settled_at=NOW,
                damage=draw(st.sampled_from([None, None, Damage.CONTENT])),
                request=draw(st.sampled_from([None, None, RequestId("0190")])),
            )
        )
    return found


def both(stored: list[Copy]) -> tuple[SqlLedger, MemoryLedger]:
    """The same copies in a ledger on SQLite and in one in memory."""
    sql = SqlLedger(_connect(_empty_database()), OWN)
    memory = MemoryLedger(OWN, State(DATABASE))
    for copy in stored:
        for ledger in (sql, memory):
            ledger.apply(Decision(None, (SaveCopy(None, copy, Content(data=b"")),)))
    return sql, memory


PATTERNS = st.sampled_from([None, None, "a@x.test", "*@x.test", "ä@x.test", "*@ä.test", ""])


@st.composite
def selectors(draw: st.DrawFn) -> Selector:
    since = draw(st.integers(-1, 6))
    return Selector(
        since=NOW + since * SECOND,
        until=NOW + draw(st.integers(since, 7)) * SECOND,
        next_hops=tuple(draw(st.sets(HOPS, max_size=2))),
        sender=draw(PATTERNS),
        recipient=draw(PATTERNS),
        message_id=draw(st.sampled_from([None, None, "<1@x>"])),
        network_message_id=draw(
            st.sampled_from([None] * 4 + [MessageId("01900000-0000-7000-8000-000000000000")])
        ),
    )


@settings(
    max_examples=100,
    deadline=timedelta(seconds=10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stored=copies(), selector=selectors(), most=st.integers(1, 5))
def test_parts_of_a_window_have_the_same_messages_in_sql_and_in_memory(
    stored: list[Copy], selector: Selector, most: int
) -> None:
    sql, memory = both(stored)
    for owner in (None, OTHER):
        found, place = [], Place()
        while True:
            mine = sql.resubmittable(selector, owner, place, most)
            assert mine == memory.resubmittable(selector, owner, place, most)
            found += mine.messages
            if mine.rest is None:
                break
            place = mine.rest
        assert found == sorted(set(found))
        assert found == sql.resubmittable(selector, owner, Place(), 1000).messages
