"""The keyword XDELIVEREDTO: from when on a mailbox service drops what it delivered before.

XDELIVEREDTO 2026-11-26T09:00:00.000Z    the oldest delivery whose message would be dropped
XDELIVEREDTO -                           the service remembers no delivery
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

KEYWORD = "XDELIVEREDTO"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)
_NOTHING = "-"
_UNKNOWN = datetime(1, 1, 1, tzinfo=UTC)


def format_delivered_to(since: datetime | None) -> str:
    """The line of the answer to LHLO. None: no delivery is remembered. ``since`` is aware."""
    text = since.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z" if since else _NOTHING
    return f"{KEYWORD} {text}"


def delivered_to_since(extensions: Mapping[str, str]) -> datetime | None:
    """From when on the server remembers deliveries; None if it remembers none, or does not say.

    ``extensions``: keyword in upper case to its arguments. A time that cannot be read is the beginning of
    time, because a warning too many is better than one too few.
    """
    text = extensions.get(KEYWORD, _NOTHING).strip()
    if text == _NOTHING:
        return None
    if not _TIME.fullmatch(text):
        return _UNKNOWN
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # the 31st of February
        return _UNKNOWN
