"""What a domain says of TLS at its hosts: MTA-STS (RFC 8461), its record, its policy, and what counts.

A policy that is kept counts until its end, whatever the DNS and the policy host say or keep to themselves:
who blocks both wins nothing. Domains are in A-labels and in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from shadowrelay.core.reckoning import Endings
from shadowrelay.core.spelling import canonical
from shadowrelay.core.values import dataclass

LONGEST_AGE = 31_557_600
"""Seconds, of max_age (3.2). A policy that says more is kept for so long."""

LONGEST_POLICY = 64 * 1024
"""Octets of a policy (3.3)."""

MOST_PATTERNS = 100
"""Of one policy: all that are kept have to fit somewhere."""

REFRESH = timedelta(days=1)
"""A policy is fetched again after so long, or after half of its age (5.1)."""

NOT_AGAIN = timedelta(minutes=5)
"""A fetch that failed is not repeated for so long (3.3)."""

WANTED_LATELY = timedelta(days=30)
"""A policy that no mail asked for in so long is not fetched again before mail does, and may make room."""

_VERSION = "STSv1"
_RECORD = re.compile(r"v=STSv1[ \t]*;")
_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_PATTERN = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_SECONDS = re.compile(r"[0-9]{1,10}")


class StsMode(StrEnum):
    """What is done about a host that does not keep to the policy (5): no delivery, a report, nothing."""

    ENFORCE = "enforce"
    TESTING = "testing"
    NONE = "none"


_MODES = {mode.value: mode for mode in StsMode}


class InvalidPolicy(Exception):
    """The text is no policy. Why stands in the message."""


@dataclass(frozen=True, slots=True)
class StsPolicy:
    """The policy of one domain. ``mx``: patterns of its hosts. ``identifier``: that of its record when it was
    fetched, at ``fetched_at`` (reckoned time).
    """

    mode: StsMode
    mx: tuple[str, ...]
    max_age: timedelta
    identifier: str
    fetched_at: datetime

    def matches(self, host: str) -> bool:
        """Is the host one of the policy's (4.1)? ``*`` stands for exactly one label, the first one."""
        host = canonical(host)
        return any(_matches(host, pattern) for pattern in self.mx)

    def ended(self, ends: Endings) -> bool:
        """Does it count no longer? Not before it has certainly that age."""
        return self.fetched_at <= ends.before(self.max_age)

    def due(self, now: datetime) -> bool:
        """Is it time to fetch it again, though its record says the same?"""
        return now - self.fetched_at >= min(REFRESH, self.max_age / 2)


def record_of(domain: str) -> str:
    """The name whose TXT records tell of a domain's policy."""
    return f"_mta-sts.{canonical(domain)}"


def host_of(domain: str) -> str:
    """The host that has a domain's policy, and whose name its certificate shows (3.3)."""
    return f"mta-sts.{canonical(domain)}"


PATH = "/.well-known/mta-sts.txt"


def announced(records: Iterable[str]) -> str | None:
    """The id in the TXT records of ``record_of``, of which just one is of this version (3.1).

    None: the domain announces no policy that can be fetched.
    """
    ours = [record for record in records if _RECORD.match(record)]
    if len(ours) != 1:
        return None
    identifier = None
    fields = [field.strip(" \t") for field in ours[0].split(";")]
    for field in fields[1:-1] if not fields[-1] else fields[1:]:
        name, equals, value = field.partition("=")
        if not (equals and value and _NAME.fullmatch(name)):
            return None
        if name == "id" and identifier is None:
            identifier = value
    return identifier if identifier and _ID.fullmatch(identifier) else None


def parsed(text: str, identifier: str, now: datetime) -> StsPolicy:
    """The policy of a text (3.2). Unknown keys are left out; of a key that is there twice, other than ``mx``,
    the first one counts. Raises InvalidPolicy.
    """
    found: dict[str, str] = {}
    patterns: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        name, colon, value = line.strip(" \t").partition(":")
        if not colon:
            if name:
                raise InvalidPolicy("a line is no key with a value")
            continue
        if name == "mx":
            patterns.append(value.strip(" \t"))
        else:
            found.setdefault(name, value.strip(" \t"))
    if found.get("version") != _VERSION:
        raise InvalidPolicy("its version is not STSv1")
    if (mode := _MODES.get(found.get("mode", ""))) is None:
        raise InvalidPolicy("its mode is not enforce, testing or none")
    if not _SECONDS.fullmatch(found.get("max_age", "")):
        raise InvalidPolicy("its max_age is not a number of seconds")
    if not patterns and mode is not StsMode.NONE:
        raise InvalidPolicy("it names no host")
    if len(patterns) > MOST_PATTERNS:
        raise InvalidPolicy(f"it names more than {MOST_PATTERNS} hosts")
    if not all(len(one) < 256 and _PATTERN.fullmatch(one) for one in patterns):
        raise InvalidPolicy("an mx is not the name of a host")
    max_age = timedelta(seconds=min(int(found["max_age"]), LONGEST_AGE))
    return StsPolicy(mode, tuple(one.lower() for one in patterns), max_age, identifier, now)


def to_be_fetched(kept: StsPolicy | None, identifier: str | None, ends: Endings) -> bool:
    """Is the policy to be fetched before mail leaves? ``identifier``: what is announced; None if nothing is,
    or if the DNS gives no answer.

    Silence takes nothing away: then what is kept counts (3.1, 5.1).
    """
    return identifier is not None and (kept is None or kept.identifier != identifier or kept.ended(ends))


def counts(kept: StsPolicy | None, ends: Endings) -> StsPolicy | None:
    """The policy that counts now, of what is kept. With ``none`` there is none (5)."""
    return None if kept is None or kept.ended(ends) or kept.mode is StsMode.NONE else kept


def _matches(host: str, pattern: str) -> bool:
    if not pattern.startswith("*."):
        return host == pattern
    first, dot, parent = host.partition(".")
    return bool(first and dot) and parent == pattern[2:]
