"""What is shown of TLS with next hops: what their domains ask for, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from typing_extensions import TypedDict

from shadowrelay.shown.fold import Folding, Rule
from shadowrelay.shown.rendering import At

AS_WANTED = "as wanted"
"""In place of a result: the session showed what was wanted."""


class TlsEntry(TypedDict):
    """The last session with a host of a domain, or the try to have one. ``policy``: what the host had to
    show (``opportunistic``, ``encrypted``, ``pkix``, ``dane``). ``source``: who asks for that. ``testing``: a
    failure is told, and mail goes all the same. ``result``: what was wrong (RFC 8460 4.3); '' if nothing.
    """

    domain: str
    host: str
    policy: Annotated[str, At("kind")]
    source: str
    testing: bool
    result: str
    when: str


def _last_of_each(values: Sequence[Sequence[TlsEntry]], _: Folding) -> list[dict[str, Any]]:
    last: dict[tuple[str, str], Any] = {}
    for one in sorted((one for some in values for one in some), key=lambda one: one["when"]):
        last[one["domain"], one["host"]] = one
    return sorted(last.values(), key=lambda one: str(one["when"]), reverse=True)


class TlsLook(TypedDict):
    """The last result of each host of a domain, the one of last first."""

    results: Annotated[list[TlsEntry], Rule(_last_of_each)]
