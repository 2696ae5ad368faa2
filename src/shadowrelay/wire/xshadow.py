"""The grammar of XSHADOW: the greeting of members, and the offer of a copy (docs/reference/protocol.md).

::

    XSHADOW <name> <database-id> <mark> <incarnation>@<beginning>,... [KNOWN=<incarnation>] [VERSION=6]
        [TIME=<milliseconds>]
    MAIL FROM:<...> XSHADOW=<message-id>;<epoch>;<rank>;<mark>;<age>;<envelope digest>[;<owner>]
        [XMADEOF=<message-id>[;<request>][;<octets>]] [REQUIRETLS] ...
    RCPT TO:<...> XFORK=<number>;<xtext next hop>[;<outcome>[@<milliseconds>]|;<order>]
        [XUNREAD=<tries>;<xtext host>] ...
    BDAT <octets> LAST <content digest>

A mark is ``<incarnation>:<sequence>``. ``<age>`` is the message's age in milliseconds: a takeover does not
reset it, and no node counts it by the clock of another. In version 1 the fifth word of MAIL's parameter is
the time of reception, in Unix milliseconds, and is the last; XFORK has no outcome, and BDAT no digest. Before
version 3 no outcome says when, and there is no XMADEOF. Version 4 brings the outcome ``removed``, and the
order of an operator: ``suspended[:<end>]@<milliseconds>`` or ``resumed@<milliseconds>``. Version 5 brings
XUNREAD: that host took the content in so many tries, and its answers could not be read. It also brings
``TIME``: what the wall clock of who greets says. Version 6 brings REQUIRETLS, as the sender said it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from shadowrelay.core import digests
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Digest,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
    is_uuid,
)
from shadowrelay.core.members.conversation import Greeting
from shadowrelay.core.messages import FOREVER, Recipient, Status, Unread
from shadowrelay.core.reception.by_reference import MadeOf
from shadowrelay.core.values import dataclass
from shadowrelay.wire.xtext import decode_xtext, encode_xtext

VERSION = 6
VERSIONS = (1, 2, 3, 4, 5, 6)  # 1 is still spoken for one release, with members that know no other version
MAX_LINE = 4096  # octets of a command or reply line between members, CRLF included

_INCARNATION = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,253}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MARK = re.compile(rf"({_INCARNATION.pattern}):({_NUMBER.pattern})")
_OFFER = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12});([0-9]{1,18});([0-9]{1,18});"
    rf"([0-9a-f]{{16}}):([0-9]{{1,18}});([0-9]{{1,13}});({digests.ALGORITHM}:[0-9a-f]{{32}})"
)
"""An offer of this version, of an owner's own message that is younger than three centuries."""
_LAST = 221_845_392_000_000  # milliseconds: the year 9000; what a policy adds to a time stays a datetime
_OLDEST = 31_556_952_000_000  # milliseconds: a thousand years, so that the time of reception is a datetime
_LATER = {f"VERSION={version}": version for version in VERSIONS[1:]}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


_SPOKEN = " ".join(map(str, VERSIONS))


def keywords(*, keeps: bool) -> tuple[str, ...]:
    """What EHLO offers to a member. ``keeps``: shadow redundancy is on. While it is off, XSHADOW is offered
    to nobody. XQDISCARD names the versions then: members still talk about what is left of before.
    """
    return (f"XSHADOW {_SPOKEN}", "XQDISCARD") if keeps else (f"XQDISCARD {_SPOKEN}",)


def offered(extensions: Mapping[str, str]) -> list[int]:
    """The versions that both ends speak; none: the other end is no member, or does not take us for one.

    ``extensions``: keyword in upper case to its arguments.
    """
    if "XQDISCARD" not in extensions:
        return []
    spoken = (extensions.get("XSHADOW") or extensions["XQDISCARD"]).split()
    return [version for version in VERSIONS if str(version) in spoken]


class Malformed(ValueError):
    """The text does not follow the grammar. The message may be shown to the client."""


@dataclass(frozen=True, slots=True)
class OfferParameter:
    """The XSHADOW parameter of MAIL: the message, its epoch and rank, and the mark of the offering member.

    ``age`` and ``envelope`` come in version 2, ``received_at`` in version 1. ``given_for``: a holder gives
    the copy to this owner, for which it holds it, because the owner's own is damaged.
    """

    message_id: MessageId
    epoch: int
    rank: int
    mark: Mark
    age: timedelta | None = None
    envelope: Digest | None = None
    given_for: ServerName | None = None
    received_at: datetime | None = None


def number(text: str) -> int:
    """A decimal number of at most 18 digits."""
    if not _NUMBER.fullmatch(text):
        raise Malformed("bad number")
    return int(text)


def milliseconds(at: datetime) -> int:
    """An aware datetime as milliseconds since 1970; the last one that ``moment`` reads, for any later one."""
    return min((at - _EPOCH) // _MILLISECOND, _LAST)


def moment(text: str) -> datetime:
    """Read a time in milliseconds since 1970. Raises Malformed."""
    if (since := number(text)) > _LAST:
        raise Malformed("bad time")
    return _EPOCH + since * _MILLISECOND


def incarnation(text: str) -> Incarnation:
    if not _INCARNATION.fullmatch(text):
        raise Malformed("bad incarnation")
    return Incarnation(text)


def message_id(text: str) -> MessageId:
    if not is_uuid(text):
        raise Malformed("bad message id")
    return MessageId(text)


def database_id(text: str) -> DatabaseId:
    if not is_uuid(text):
        raise Malformed("bad database id")
    return DatabaseId(text)


def server_name(text: str) -> ServerName:
    if not _NAME.fullmatch(text):
        raise Malformed("bad server name")
    return ServerName(text)


def digest(text: str) -> Digest:
    if not digests.is_digest(text):
        raise Malformed("bad digest")
    return Digest(text)


def parse_mark(text: str) -> Mark:
    if (found := _MARK.fullmatch(text)) is None:
        raise Malformed("bad mark")
    return Mark(Incarnation(found[1]), int(found[2]))


def format_mark(mark: Mark) -> str:
    return f"{mark.incarnation}:{mark.sequence}"


def format_greeting(greeting: Greeting) -> str:
    """The arguments of XSHADOW, also the text of its answer."""
    lineage = greeting.lineage
    beginnings = ",".join(f"{entry.incarnation}@{entry.sequence}" for entry in lineage.beginnings)
    text = f"{greeting.name} {lineage.database_id} {format_mark(lineage.mark)} {beginnings}"
    if greeting.known:
        text += f" KNOWN={greeting.known}"
    if greeting.version > 1:
        text += f" VERSION={greeting.version}"
    if greeting.version > 4 and greeting.time:
        text += f" TIME={milliseconds(greeting.time)}"
    return text


def parse_greeting(text: str) -> Greeting:
    """Read the arguments of XSHADOW. Raises Malformed."""
    words = text.split(" ")
    if not 4 <= len(words) <= 7 or not is_uuid(words[1]):
        raise Malformed("XSHADOW needs name, database id, mark and lineage")
    mark = parse_mark(words[2])
    beginnings = []
    for entry in words[3].split(","):
        name, at, sequence = entry.partition("@")
        if not at:
            raise Malformed("bad lineage")
        beginnings.append(Beginning(incarnation(name), number(sequence)))
    sequences = [beginning.sequence for beginning in beginnings]
    if beginnings[-1].incarnation != mark.incarnation or sequences != sorted(sequences):
        raise Malformed("lineage does not lead to the mark")
    if mark.sequence < sequences[-1]:
        raise Malformed("mark lies before its incarnation")
    known, version, time, more = None, 1, None, words[4:]
    if more and more[0].startswith("KNOWN="):
        known = incarnation(more.pop(0).removeprefix("KNOWN="))
    if more and more[0] in _LATER:
        version = _LATER[more.pop(0)]
    if more and version > 4 and more[0].startswith("TIME="):
        time = moment(more.pop(0).removeprefix("TIME="))
    if more:
        raise Malformed("unknown argument")
    lineage = Lineage(DatabaseId(words[1]), tuple(beginnings), mark.sequence)
    return Greeting(server_name(words[0]), lineage, known, version, time)


def format_offer(offer: OfferParameter) -> str:
    """The value of MAIL's XSHADOW parameter; version 1 if there is no digest."""
    words = [offer.message_id, str(offer.epoch), str(offer.rank), format_mark(offer.mark)]
    if offer.age is not None and offer.envelope is not None:
        words += [str(min(offer.age // _MILLISECOND, _OLDEST)), offer.envelope]
    elif offer.received_at is not None:
        words.append(str(milliseconds(offer.received_at)))
    if offer.given_for:
        words.append(offer.given_for)
    return ";".join(words)


def parse_offer(text: str) -> OfferParameter:
    """Read MAIL's XSHADOW parameter. Raises Malformed."""
    if found := _OFFER.fullmatch(text):
        of, epoch, rank, name, sequence, age, envelope = found.groups()
        mark = Mark(Incarnation(name), int(sequence))
        length = int(age) * _MILLISECOND
        return OfferParameter(MessageId(of), int(epoch), int(rank), mark, length, Digest(envelope))
    return parse_any_offer(text)


def parse_any_offer(text: str) -> OfferParameter:
    """As ``parse_offer``, of any version. Raises Malformed."""
    parts = text.split(";")
    if len(parts) not in (5, 6, 7):
        raise Malformed("XSHADOW needs message id, epoch, rank, mark, age and digest")
    length = number(parts[4])
    if length > (_LAST if len(parts) == 5 else _OLDEST):
        raise Malformed("bad time" if len(parts) == 5 else "bad age")
    named = message_id(parts[0]), number(parts[1]), number(parts[2]), parse_mark(parts[3])
    if len(parts) == 5:
        return OfferParameter(*named, received_at=_EPOCH + length * _MILLISECOND)
    return OfferParameter(
        *named,
        age=length * _MILLISECOND,
        envelope=digest(parts[5]),
        given_for=server_name(parts[6]) if len(parts) == 7 else None,
    )


def format_origin(origin: MadeOf) -> str:
    """The value of MAIL's XMADEOF parameter."""
    octets = None if origin.octets is None else str(origin.octets)
    return ";".join(word for word in (origin.message_id, origin.request, octets) if word is not None)


def parse_origin(text: str) -> MadeOf:
    """Read MAIL's XMADEOF parameter. Raises Malformed."""
    first, *more = text.split(";")
    original = message_id(first)
    request = RequestId(more.pop(0)) if more and is_uuid(more[0]) else None
    octets = number(more.pop(0)) if more else None
    if more:
        raise Malformed("XMADEOF needs message id, request and octets")
    return MadeOf(original, request, octets)


_OUTCOMES = frozenset({Status.DELIVERED, Status.RELAYED, Status.FAILED, Status.REMOVED})
_SUSPENDED, _RESUMED = "suspended", "resumed"


class Fork(NamedTuple):
    """What XFORK says of a recipient: ``suspended`` and ``ordered_at`` as in ``Recipient``."""

    number: int
    next_hop: NextHop
    status: Status = Status.READY
    settled_at: datetime | None = None
    suspended: datetime | None = None
    ordered_at: datetime | None = None

    def recipient(self, address: str, notify: tuple[str, ...], orcpt: str | None) -> Recipient:
        """The recipient of which this is said; the rest stands in RCPT."""
        return Recipient(
            self.number,
            address,
            self.next_hop,
            notify,
            orcpt,
            self.status,
            settled_at=self.settled_at,
            suspended=self.suspended,
            ordered_at=self.ordered_at,
        )


def fork_of(one: Recipient, version: int = VERSION) -> Fork:
    """What is said of a recipient in that version of the protocol; a removal was a failure before 4."""
    fork = Fork(one.number, one.next_hop, one.status, one.settled_at, one.suspended, one.ordered_at)
    if version > 3:
        return fork
    status = Status.FAILED if one.status is Status.REMOVED else one.status
    return fork._replace(status=status, suspended=None, ordered_at=None)


def format_fork(
    recipient: int,
    next_hop: NextHop,
    status: Status = Status.READY,
    settled_at: datetime | None = None,
    suspended: datetime | None = None,
    ordered_at: datetime | None = None,
) -> str:
    """The value of RCPT's XFORK parameter."""
    hop = encode_xtext(next_hop).replace(";", "+3B")
    text = f"{recipient};{hop}"
    if status is Status.READY:
        if ordered_at is None:
            return text
        if suspended is None:
            return f"{text};{_RESUMED}@{milliseconds(ordered_at)}"
        end = "" if suspended == FOREVER else f":{milliseconds(suspended)}"
        return f"{text};{_SUSPENDED}{end}@{milliseconds(ordered_at)}"
    return f"{text};{status.value}" + (f"@{milliseconds(settled_at)}" if settled_at else "")


@lru_cache(maxsize=1024)  # read at its RCPT, at the next RCPT, and when the content comes
def parse_fork(text: str) -> Fork:
    """Read XFORK of RCPT. Raises Malformed."""
    index, semicolon, hop = text.partition(";")
    before, another, status = hop.rpartition(";")
    status, timed, at = status.partition("@")
    order, ends, end = status.partition(":")
    outcome = bool(another) and status in _OUTCOMES
    ordered = bool(another) and (order == _SUSPENDED or status == _RESUMED)
    if outcome or ordered:
        hop = before
    if not semicolon:
        raise Malformed("XFORK needs number and next hop")
    position = number(index)
    if not 1 <= position <= 1_000_000:
        raise Malformed("bad recipient number")
    try:
        next_hop = NextHop(decode_xtext(hop))
    except ValueError as error:
        raise Malformed("bad next hop") from error
    if ordered:
        until = None if status == _RESUMED else moment(end) if ends else FOREVER
        return Fork(position, next_hop, suspended=until, ordered_at=moment(at))
    if not outcome:
        return Fork(position, next_hop)
    return Fork(position, next_hop, Status(status), moment(at) if timed else None)


_MOST_TRIES = 1_000_000


def format_unread(unread: Unread) -> str:
    """The value of RCPT's XUNREAD parameter, and the argument of the kind ``unread``."""
    return f"{unread.tries};{encode_xtext(unread.host)}"


def parse_unread(text: str) -> Unread:
    """Read it. Raises Malformed."""
    tries, semicolon, host = text.partition(";")
    if not semicolon or number(tries) > _MOST_TRIES:
        raise Malformed("an unread answer has tries and host")
    try:
        return Unread(number(tries), decode_xtext(host))
    except ValueError as error:
        raise Malformed("bad host") from error
