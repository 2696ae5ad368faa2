"""What rows of our logs look like: for each event its sources, and the columns and entries that it has.

One table, of the rows that the relay writes (docs/reference/tracking-log.md). The readers of logs ask it, and
so does whoever makes logs or changes them. A row of another form is none: something was erased or renamed.
Rows of the first schema-version have the source of their event, and what else they have is as it was when
they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from shadowaudit.core.events import (
    ADMIN,
    AGENT,
    FIRST_SCHEMA,
    ROUTING,
    SAFETY_NET,
    SCHEMAS,
    SETTLED_ELSEWHERE,
    Kind,
)

CELLS = (
    "client-hostname", "server-hostname", "source-context", "recipient-address", "recipient-status",
    "total-bytes", "reference", "sender-address",
)  # fmt: skip
"""Columns that a form may ask for. Entries of custom-data have ``S:`` in front."""

DIGESTS = "digests"
"""S:Content or S:Envelope. Which of them a message has, ``core.judge`` compares over its rows."""

TAKEN = "taken"
"""HARECEIVE says that ownership was taken."""

SETTLED = "settled"
"""HADISCARD says that the recipients are settled elsewhere."""

_REDUNDANCY, _QUEUE, _SMTP, _STORE = "REDUNDANCY", "QUEUE", "SMTP", "STOREDRIVER"

_MESSAGE = "S:Epoch recipient-address total-bytes sender-address"
_SENT = f"{_MESSAGE} server-hostname source-context recipient-status S:Fork"
_JOB = f"{_MESSAGE} S:Fork S:Operator S:Job"
_ACT = "source-context S:Queue S:Operator S:Job S:ChangedBy"
_HOSTS = "S:Host S:OwnerHost S:ShadowHost"
_COPY = f"{_MESSAGE} client-hostname S:Rank S:OwnerDb"


@dataclass(frozen=True, slots=True)
class Form:
    """A row of that event and source. It has all of ``always``, and of what forms name else only ``may``."""

    event: Kind
    source: str
    always: frozenset[str]
    may: frozenset[str]

    def fits(self, has: Set[str]) -> bool:
        return self.always <= has and (has & NAMES) <= self.always | self.may


def _form(event: Kind, source: str, always: str, may: str = "") -> Form:
    return Form(event, source, frozenset(always.split()), frozenset(may.split()))


FORMS = (
    _form(
        Kind.RECEIVE,
        _SMTP,
        _MESSAGE,
        f"source-context S:Replication S:Login S:HandedBy S:HandedAs {DIGESTS}",
    ),
    _form(Kind.RECEIVE, AGENT, f"{_MESSAGE} reference", DIGESTS),
    _form(Kind.RECEIVE, ROUTING, f"{_MESSAGE} reference", DIGESTS),
    _form(Kind.DUPLICATERECEIVE, _SMTP, _MESSAGE, "source-context"),
    _form(
        Kind.HAREDIRECT,
        _SMTP,
        f"{_MESSAGE} server-hostname source-context reference S:Shadow S:ShadowDb",
        _HOSTS,
    ),
    _form(Kind.HAREDIRECTFAIL, _SMTP, f"{_MESSAGE} source-context"),
    _form(Kind.HARECEIVE, _SMTP, f"{_COPY} reference", f"source-context {_HOSTS} {DIGESTS}"),
    _form(Kind.HARECEIVE, _SMTP, f"{_COPY} source-context {TAKEN}", f"{_HOSTS} {DIGESTS}"),
    _form(Kind.HADISCARD, _SMTP, f"{_MESSAGE} source-context", f"{SETTLED} {DIGESTS}"),
    _form(
        Kind.HADISCARD, _SMTP, f"{_MESSAGE} source-context {SETTLED} S:TellerDb reference", DIGESTS
    ),
    _form(Kind.HADISCARD, _REDUNDANCY, f"{_MESSAGE} server-hostname source-context", f"{SETTLED} {DIGESTS}"),
    _form(Kind.HADAMAGE, _REDUNDANCY, f"{_MESSAGE} source-context S:Damaged"),
    _form(Kind.HADAMAGE, _REDUNDANCY, "source-context S:Damaged"),
    _form(Kind.HARESTORE, _REDUNDANCY, f"{_MESSAGE} client-hostname server-hostname", DIGESTS),
    _form(
        Kind.RESUBMIT,
        _REDUNDANCY,
        f"{_MESSAGE} client-hostname source-context reference S:Owner S:OwnerDb S:Reason",
    ),
    _form(
        Kind.RESUBMIT,
        _REDUNDANCY,
        f"{_MESSAGE} server-hostname source-context reference S:Hop S:HopDb S:Reason",
        DIGESTS,
    ),
    _form(Kind.RESUBMIT, SAFETY_NET, f"{_MESSAGE} source-context reference S:Request S:Owner", DIGESTS),
    _form(Kind.TRANSFER, _REDUNDANCY, f"{_MESSAGE} server-hostname source-context"),
    _form(Kind.SEND, _SMTP, _SENT, f"S:InDoubt {DIGESTS}"),
    _form(Kind.SENDEXTERNAL, _SMTP, _SENT, f"S:InDoubt {DIGESTS}"),
    _form(Kind.DELIVER, _STORE, _SENT, f"S:InDoubt {DIGESTS}"),
    _form(Kind.DUPLICATEDELIVER, _STORE, _SENT, f"S:InDoubt {DIGESTS}"),
    _form(Kind.DEFER, _SMTP, f"{_MESSAGE} S:Fork", "source-context S:InDoubt"),
    _form(
        Kind.FAIL, _QUEUE, f"{_MESSAGE} source-context recipient-status", f"reference S:NoReport {DIGESTS}"
    ),
    _form(
        Kind.FAIL,
        ADMIN,
        f"{_JOB} source-context recipient-status",
        f"reference S:NoReport S:Reason {DIGESTS}",
    ),
    _form(  # it was set aside
        Kind.FAIL,
        ADMIN,
        f"{_MESSAGE} S:Fork source-context recipient-status",
        f"reference S:NoReport S:Operator {DIGESTS}",
    ),
    _form(Kind.DSN, "DSN", f"{_MESSAGE} reference", DIGESTS),
    _form(Kind.SUSPEND, _QUEUE, f"{_MESSAGE} source-context"),
    _form(Kind.SUSPEND, _QUEUE, "source-context S:Damaged", "S:Operator"),
    _form(Kind.SUSPEND, ADMIN, _JOB, "source-context S:Reason S:Until"),
    _form(Kind.RESUME, ADMIN, _JOB, "source-context S:Reason"),
    _form(Kind.RESUME, ADMIN, _MESSAGE, "S:Operator"),
    _form(Kind.RESUME, ADMIN, "S:Damaged", "source-context S:Operator"),
    _form(Kind.RETRY, ADMIN, _JOB, "source-context S:Reason"),
    *(_form(kind, ADMIN, _ACT, "S:Reason S:Until") for kind in (Kind.SUSPEND, Kind.RESUME, Kind.RETRY)),
    _form(Kind.REMOVE, ADMIN, _JOB, f"source-context S:Reason reference {DIGESTS}"),
    _form(Kind.DROP, ADMIN, "source-context S:Damaged", "S:Operator"),
    _form(Kind.DROP, AGENT, f"{_MESSAGE} S:Filter", "source-context"),  # by a filter, in place of RECEIVE
    _form(Kind.LOAD, "BOOTLOADER", f"{_MESSAGE} S:Snapshot S:Role"),
    _form(Kind.LOAD, "BOOTLOADER", "S:Snapshot S:Count S:Taken", "S:Among"),
    _form(Kind.BACKPRESSURE, _QUEUE, "source-context S:Resource S:Level S:Before S:Reading"),
    _form(Kind.RESOLVE, ROUTING, _MESSAGE),
    _form(Kind.EXPAND, ROUTING, f"{_MESSAGE} source-context reference", DIGESTS),
)  # fmt: skip

_SIDES = frozenset({"client-hostname", "server-hostname"})
"""Columns that a node fills with its own name, if a row says nothing of the other side."""

NAMES = frozenset(name for form in FORMS for name in form.always | form.may) - _SIDES
"""What forms name. Other entries say nothing that a verdict depends on."""


def _by_event() -> Mapping[str, Mapping[str, tuple[Form, ...]]]:
    found: dict[str, dict[str, tuple[Form, ...]]] = {}
    for form in FORMS:
        some = found.setdefault(form.event, {})
        some[form.source] = (*some.get(form.source, ()), form)
    return found


_FORMS = _by_event()


def named(entries: Mapping[str, str]) -> frozenset[str]:
    """The entries of custom-data that forms name."""
    return NAMES & {f"S:{name}" for name, text in entries.items() if text}


def marks(event: str, context: str) -> frozenset[str]:
    """What the words of a row make of its form."""
    if event == Kind.HARECEIVE and context == TAKEN:
        return frozenset({TAKEN})
    if event == Kind.HADISCARD and context.startswith(tuple(f"{reason};" for reason in SETTLED_ELSEWHERE)):
        return frozenset({SETTLED})
    return frozenset()


def unfit(event: str, source: str, version: str, has: Set[str]) -> str:
    """What keeps a row from being one of that event, or nothing. ``has``: columns, entries and marks."""
    if version not in SCHEMAS:
        return f"schema-version {version[:20]!r}"
    forms = _FORMS.get(event, {}).get(source)
    if not forms:
        return f"{event[:20]} of source {source[:20]!r}"
    if version == FIRST_SCHEMA or any(form.fits(has) for form in forms):
        return ""
    near = min(forms, key=lambda form: len(form.always ^ has & NAMES))
    lacks, more = sorted(near.always - has), sorted((has & NAMES) - near.always - near.may)
    told = (f"without {', '.join(lacks)}" if lacks else "", f"with {', '.join(more)}" if more else "")
    return f"{event} {' and '.join(filter(None, told))}"
