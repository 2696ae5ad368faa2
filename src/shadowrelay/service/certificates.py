"""The files of certificates and keys that a node uses: whether they changed, and how long they are valid."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path

import structlog

from shadowrelay.settings import Settings
from shadowrelay.settings.certificates import files, shown, valid_until

log = structlog.get_logger(__name__)

_Stamp = tuple[int, int, int] | None
"""What tells one content of a file from another: inode, time of change and size; None: there is no file."""


class Certificates:
    """The files as they were when the settings, or the files, were last taken. Make one before the files are
    read: then a change meanwhile is seen at the next look.
    """

    def __init__(self, settings: Settings) -> None:
        self._files = {path: _stamp(path) for _, path in files(settings)}
        self._shown = dict(shown(settings))
        self._texts: dict[str, bytes] = {}
        for key, path in self._shown.items():
            with suppress(OSError):
                self._texts[key] = path.read_bytes()
        self._refused: dict[Path, _Stamp] | None = None
        self._wrong = ""

    @property
    def warning(self) -> str:
        """What is wrong with the files, if they cannot be taken; those from before are in use."""
        return (
            f"changed certificates are not taken, those from before are in use: {self._wrong}"
            if self._wrong
            else ""
        )

    def changed(self) -> bool:
        """Is a file another one than the one in use?"""
        found = {path: _stamp(path) for path in self._files}
        if found == self._files:  # put back as it was
            self._wrong = ""
        return found != self._files

    def refused(self, error: Exception) -> None:
        """The files cannot be used as they are, perhaps because they are being written. They are tried again
        at the next look, and logged once.
        """
        wrong = str(error)
        if wrong != self._wrong:
            log.error("certificates_not_taken", error=wrong, consequence="those from before are in use")
        self._wrong = wrong

    def told(self) -> None:
        """Log what is in use now."""
        for key, path in self._shown.items():
            log.info(
                "certificate_taken",
                setting=key,
                file=str(path),
                valid_until=str(self.valid_until.get(key, "unknown")),
            )

    @cached_property
    def valid_until(self) -> Mapping[str, datetime]:
        """Until when each certificate of this node that is in use is valid, by its setting."""
        return {key: until for key, text in self._texts.items() if (until := valid_until(key, text))}


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
