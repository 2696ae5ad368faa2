"""Announcements of members, as JSON that the cluster's authority signs: grammar alone, no cryptography.

    {"announcement": {"version": 1, "serial": …, "name": …, "address": …, "site": …, "host": …},
     "signature": …}

What is signed is the line ``signed_octets``, which has every value once, in one order.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

from shadowrelay.core.values import dataclass
from shadowrelay.wire.json_fields import count_in, object_of, text_in
from shadowrelay.wire.xshadow import Malformed, server_name

MOST_OCTETS = 4096
"""Octets of a signed announcement."""

_VERSION = 1
_HEAD = b"shadowrelay member announcement 1\n"
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_FIELDS = {"version", "serial", "name", "address", "site", "host"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A member that joins. ``address``: host:port of its peer connector. ``serial``: milliseconds of the
    authority's clock; of two announcements of one member the later one counts.
    """

    serial: int
    name: str
    address: str
    site: str
    host: str


def signed_octets(announcement: Announcement) -> bytes:
    """What the authority signs."""
    return _HEAD + json.dumps(_told(announcement), sort_keys=True, separators=(",", ":")).encode("ascii")


def format_signed(announcement: Announcement, signature: bytes) -> str:
    """The file of an announcement; see ``parse_signed``."""
    told = {"announcement": _told(announcement), "signature": base64.b64encode(signature).decode("ascii")}
    return json.dumps(told)


def parse_signed(text: str) -> tuple[Announcement, bytes]:
    """An announcement, and its signature, which nobody has verified yet. Raises Malformed."""
    if len(text) > MOST_OCTETS:
        raise Malformed(f"an announcement has at most {MOST_OCTETS} octets")
    try:
        whole = object_of(json.loads(text))
        signature = base64.b64decode(text_in(whole, "signature"), validate=True)
    except (ValueError, binascii.Error, RecursionError) as error:
        raise Malformed("it is no announcement") from error
    found = object_of(whole.get("announcement"))
    if set(found) != _FIELDS or count_in(found, "version") != _VERSION:
        raise Malformed("it is an announcement of another version")
    announcement = Announcement(
        serial=count_in(found, "serial"),
        name=server_name(text_in(found, "name")),
        address=text_in(found, "address"),
        site=_label(text_in(found, "site")),
        host=_label(text_in(found, "host")),
    )
    return announcement, signature


def _told(announcement: Announcement) -> dict[str, object]:
    return {
        "version": _VERSION,
        "serial": announcement.serial,
        "name": announcement.name,
        "address": announcement.address,
        "site": announcement.site,
        "host": announcement.host,
    }


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise Malformed("site and host are labels")
    return text
