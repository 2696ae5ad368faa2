"""Remembers what became of TLS with the hosts of domains, in the memory of this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field

from shadowrelay.core.delivery.tls_policy import TlsResult
from shadowrelay.core.values import dataclass

MOST_HOSTS = 1000
"""Hosts of domains whose last result is kept: those of last."""


@dataclass(slots=True)
class TlsResults:
    """``counts``: results since the start, by what asked for TLS, and by what was wrong ('' if nothing).
    ``heard``: who is told of each result.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    heard: list[Callable[[TlsResult], None]] = field(default_factory=list)
    _last: dict[tuple[str, str], TlsResult] = field(default_factory=dict)

    def note(self, result: TlsResult) -> None:
        """A session with a host of a domain began, or could not."""
        self.counts[result.source, result.result] += 1
        key = (result.domain, result.host)
        self._last.pop(key, None)
        self._last[key] = result  # the one of last is the last
        if len(self._last) > MOST_HOSTS:
            del self._last[next(iter(self._last))]
        for told in self.heard:
            told(result)

    def forget(self, domain: str, host: str) -> None:
        """What was wrong with that host is so no longer."""
        self._last.pop((domain, host), None)

    def seen(self) -> Sequence[TlsResult]:
        """The last result of each host, the one of last first."""
        return tuple(reversed(self._last.values()))
