"""Describes errors of the settings: each with its key, value, place and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingError:
    """One wrong setting. Empty text means that the part does not apply.

    ``source`` is the file, environment variable or option that the value came from; ``value`` is already
    masked if the setting is a secret. As text it is one line, with unprintable characters as escapes.
    """

    key: str
    message: str
    value: str = ""
    source: str = ""
    allowed: str = ""

    def __str__(self) -> str:
        subject = f"{self.key} = {self.value}" if self.key and self.value else self.key
        place = f" ({self.source})" if subject and self.source else self.source
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        text = f"{subject}{place}: {self.message}{allowed}"
        return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class SettingsInvalid(Exception):
    """The settings cannot be used; ``errors`` has every reason, in the order of the schema."""

    def __init__(self, errors: list[SettingError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors
