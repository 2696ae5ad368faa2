"""A second copy whose content the holder has already: nothing but the envelope goes over the wire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, eventually, pieces

from shadowrelay.core.decisions import Content, Decision, DropCopy, SaveCopy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.messages import Copy, Digests, Recipient, Stage, Status
from shadowrelay.core.ownership.transfer import made_here, settled_now
from shadowrelay.core.reception.redundancy import Leg, OfferAttempt
from shadowrelay.core.steps import OfferCopy
from shadowrelay.database import content
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.smtp.members.offer import OutgoingOffer
from shadowrelay.wire import xshadow

MADE = MessageId("01900000-0000-8000-8000-000000000001")
REQUEST = RequestId("01900000-0000-4000-8000-000000000001")
LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 1000
BOTH = pytest.mark.parametrize("octets", [MESSAGE, LARGE], ids=["small", "large"])


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many octets of content each offer sent."""
    found: list[int] = []
    write = OutgoingOffer.write

    async def written(offer: OutgoingOffer, data: bytes) -> None:
        found[-1] += len(data)
        await write(offer, data)

    def begun(offer: OutgoingOffer, *given: object) -> None:
        found.append(0)
        begin(offer, *given)  # type: ignore[arg-type]

    begin = OutgoingOffer.__init__
    monkeypatch.setattr(OutgoingOffer, "__init__", begun)
    monkeypatch.setattr(OutgoingOffer, "write", written)
    return found


async def in_safety_net(*stations: Station) -> Copy:
    """The message that they have, settled on each."""
    for one in stations:
        (copy,) = await one.copies()
        done = copy.with_recipients(replace(r, status=Status.DELIVERED) for r in copy.recipients)
        settled = settled_now(done, one.clock())
        await one.read(
            lambda ledger, copy=copy, settled=settled: ledger.apply(
                Decision(None, (SaveCopy(copy, settled),))
            )
        )
    (original,) = await stations[0].copies()
    return original


async def made_of(owner: Station, original: Copy) -> Copy:
    """A message with the content of another one, exposed as each new one is."""

    def work(ledger: SqlLedger) -> Copy:
        envelope = replace(original.envelope, sender="")
        recipients = (Recipient(1, "b@example.net", NextHop("inside"), ("NEVER",)),)
        assert original.digests
        digests = Digests(original.digests.content, of_envelope(envelope, recipients))
        plain = made_here(ledger, MADE, envelope, recipients, digests, owner.clock())
        made = replace(plain, content_of=original.id, request=REQUEST)
        return ledger.apply(Decision(made, (SaveCopy(None, made, Content(of=original.id)),)))

    return await owner.read(work)


async def safe(owner: Station) -> None:
    owner.run_repair()
    await eventually(lambda: owner.database.ledger.tally.exposed == 0)


async def stored(there: Station, message_id: MessageId) -> Copy:
    found = await there.read(lambda ledger: ledger.copy(message_id))
    assert found is not None
    return found


@BOTH
async def test_a_holder_of_the_original_is_asked_first_and_sent_nothing(
    tmp_path: Path, octets: bytes, sizes: list[int]
) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (owner, *others):
        await sent(owner, octets)
        (ours,) = await owner.copies()
        (holder,) = (one for one in others if one.name == ours.holders[0].name)
        original = await in_safety_net(owner, holder)
        sizes.clear()
        await made_of(owner, original)
        await safe(owner)
        assert sizes == [0]
        copy = await stored(holder, MADE)
        assert (copy.held, copy.content_of, copy.request) == (True, original.id, REQUEST)
        assert (copy.envelope.size, copy.envelope.subject) == (
            original.envelope.size,
            original.envelope.subject,
        )
        assert await holder.octets(MADE) == await owner.octets(MADE) == await owner.octets(original.id)
        for one in (owner, holder):
            assert (await one.rows("content"), await one.rows("shared_content")) == (1, 1)
            assert len(one.files()) == (octets is LARGE)


async def test_the_owner_of_the_original_is_sent_nothing_by_its_holder(
    tmp_path: Path, sizes: list[int]
) -> None:
    """The holder answers for an owner that was lost, which comes back with its database."""
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await sent(owner, MESSAGE)
        original = await in_safety_net(owner, holder)
        sizes.clear()
        await made_of(holder, await stored(holder, original.id))
        await safe(holder)
        assert sizes == [0]
        assert await owner.octets(MADE) == await owner.octets(original.id)


@BOTH
async def test_a_holder_that_has_no_original_any_more_is_sent_the_content_at_once(
    tmp_path: Path, octets: bytes, sizes: list[int]
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await sent(owner, octets)
        original = await in_safety_net(owner, holder)
        theirs = await stored(holder, original.id)
        await holder.read(lambda ledger: ledger.apply(Decision(None, (DropCopy(theirs),))))
        sizes.clear()
        made = await made_of(owner, original)
        await safe(owner)
        assert sizes == [0, made.envelope.size]
        assert (await stored(owner, MADE)).ranks_given == 1
        copy = await stored(holder, MADE)
        assert (copy.content_of, copy.request) == (original.id, REQUEST)
        assert await holder.octets(MADE) == await owner.octets(MADE)


def spoil(file: Path) -> None:
    """One bit of it is another one."""
    octets = bytearray(file.read_bytes())
    octets[len(octets) // 2] ^= 1
    file.write_bytes(octets)


@BOTH
async def test_a_holder_whose_original_is_damaged_is_sent_the_content(
    tmp_path: Path, octets: bytes, sizes: list[int]
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await sent(owner, octets)
        original = await in_safety_net(owner, holder)
        found = await holder.read(lambda ledger: content.stored(ledger, original.id))
        assert found
        if found.path:
            spoil(Path(found.path))
        else:
            await holder.read(
                lambda ledger: ledger.connection.execute("UPDATE content SET data = ?", (b"another",))
            )
        sizes.clear()
        await made_of(owner, original)
        await safe(owner)
        assert sizes == [0, original.envelope.size]
        assert await holder.octets(MADE) == await owner.octets(MADE)
        assert (await stored(holder, original.id)).damaged
        assert not (await stored(holder, MADE)).damaged


async def test_a_member_that_does_not_have_a_message_cannot_get_it_by_its_id(tmp_path: Path) -> None:
    """mx3 knows id, size and digest of a message that mx1 and mx2 have."""
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (owner, *others):
        await sent(owner, MESSAGE)
        (ours,) = await owner.copies()
        holder, stranger = sorted(others, key=lambda one: one.name != ours.holders[0].name)
        original = await in_safety_net(owner, holder)
        assert original.digests
        step = OfferCopy.of(
            replace(original, id=MADE, content_of=original.id), holder.name, epoch=1, rank=1, refers=True
        )
        for asked in (owner, holder):
            attempt = await referred(stranger, replace(step, to=asked.name))
            assert (attempt.leg, attempt.reply.rpartition(" ")[0]) == (
                Leg.REFUSED,
                "450 4.6.0 Send the content",
            )
            assert await asked.read(lambda ledger: ledger.copy(MADE)) is None
        assert (await referred(owner, step)).leg is Leg.ACKNOWLEDGED


async def referred(caller: Station, step: OfferCopy) -> OfferAttempt:
    """An offer without its content, whatever the answer is."""
    session = await caller.node.members.acquire(step.to)
    assert step.digests
    attempt = await caller.node.members.offering(session, step).refer(step.digests.content)
    session.abort()
    return attempt


@pytest.mark.parametrize("changed", ["size", "digest", "content beside it", "given", "itself"])
async def test_a_reference_that_says_something_else_is_refused(tmp_path: Path, changed: str) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await sent(owner, MESSAGE)
        original = await in_safety_net(owner, holder)
        assert original.digests
        made = replace(original, id=MADE, content_of=MADE if changed == "itself" else original.id)
        step = OfferCopy.of(made, holder.name, epoch=1, rank=1, refers=True)
        digest = original.digests.content
        expected = "450 4.6.0"
        if changed == "size":
            step = replace(step, envelope=replace(step.envelope, size=1))
        elif changed == "digest":
            digest = of_content(b"another")
        elif changed != "content beside it":
            step = replace(step, given_for=holder.name if changed == "given" else None)
            expected = "501 5.5.4"
        session = await owner.node.members.acquire(holder.name)
        offering = owner.node.members.offering(session, step)
        beside = pieces(MESSAGE) if changed == "content beside it" else pieces()
        attempt = await offering.send(beside, digest)
        session.abort()
        assert (attempt.leg, attempt.reply[:9]) == (Leg.REFUSED, expected)
        assert await holder.read(lambda ledger: ledger.copy(MADE)) is None


async def test_a_member_of_an_earlier_version_is_sent_the_content_and_not_told_what_it_is_made_of(
    tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xshadow, "VERSIONS", (1, 2))
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await sent(owner, MESSAGE)
        original = await in_safety_net(owner, holder)
        sizes.clear()
        made = await made_of(owner, original)
        await safe(owner)
        assert sizes == [made.envelope.size]
        copy = await stored(holder, MADE)
        assert (copy.content_of, copy.request) == (None, None)
        assert copy.stage is Stage.QUEUED
