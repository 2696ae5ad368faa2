"""The settings that the parts of a node look at each time, so that a reload changes them all at once.

Each value is made before, and taken by assignment: no part sees a half-changed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, overload

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.reception.routing import Route
from shadowrelay.core.reception.sites import SitePath
from shadowrelay.core.recipients import AddressBook, no_book
from shadowrelay.errors import NodeFailed
from shadowrelay.reception.recipient_files import RecipientsInvalid
from shadowrelay.reception.recipients import RecipientsFile
from shadowrelay.settings import Settings
from shadowrelay.settings.routing import book_limits, journals, promotion, routes
from shadowrelay.settings.sites import ways

K = TypeVar("K")
V = TypeVar("V")


def recipients_of(settings: Settings) -> RecipientsFile | None:
    """The recipients file, read; None if there is none. Raises NodeFailed."""
    if settings.recipients_file is None:
        return None
    try:
        return RecipientsFile(settings.recipients_file, book_limits(settings))
    except (OSError, RecipientsInvalid) as error:
        raise NodeFailed(f"recipients_file: {error}") from error


class LiveList(Sequence[V]):
    """A list of now."""

    def __init__(self, now: tuple[V, ...]) -> None:
        self.now = now

    @overload
    def __getitem__(self, index: int) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[V, ...]: ...
    def __getitem__(self, index: int | slice) -> V | tuple[V, ...]:
        return self.now[index]

    def __len__(self) -> int:
        return len(self.now)

    def __iter__(self) -> Iterator[V]:
        return iter(self.now)


class LiveMap(Mapping[K, V]):
    """A table of now."""

    def __init__(self, now: Mapping[K, V]) -> None:
        self.now = now

    def __getitem__(self, key: K) -> V:
        return self.now[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)

    def __bool__(self) -> bool:
        return bool(self.now)


class LiveSettings:
    """What the settings of now say to many parts of a node."""

    def __init__(self, settings: Settings, recipients: RecipientsFile | None) -> None:
        self.settings = settings
        self.recipients = recipients
        self.routes = LiveList[Route](routes(settings))
        self.ways: LiveMap[str, SitePath] = LiveMap(ways(settings))
        self.journals: LiveMap[NextHop, tuple[str, NextHop]] = LiveMap(journals(settings))
        self._promotion = promotion(settings)

    def book(self) -> AddressBook:
        return self.recipients.book() if self.recipients else no_book()

    def promotion(self, targets: Sequence[NextHop]) -> list[NextHop]:
        return self._promotion(targets)

    def prepare(self, settings: Settings, recipients: RecipientsFile | None) -> Callable[[], None]:
        """Make everything of other settings. What is returned takes it, and cannot fail."""
        made = LiveSettings(settings, recipients)

        def take() -> None:
            self.settings, self.recipients = made.settings, made.recipients
            self.routes.now, self.ways.now, self.journals.now = (
                made.routes.now,
                made.ways.now,
                made.journals.now,
            )
            self._promotion = made._promotion

        return take
