"""Publish what a run made, and remove what was current long before it. Knows no Spark.

Only one run can publish a number. Local directories and HDFS create a file exclusively. Object stores that
pyarrow reaches cannot, so runs claim the number first and look whether somebody else did: a store that lists
what was written shows each of two claims to at least one of the two runs, and that one withdraws.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyarrow import fs

from shadowaudit.spark.places import shown
from shadowaudit.spark.tables.store import (
    MANIFESTS,
    Manifest,
    Place,
    Replaced,
    TablesError,
    name_of,
    sync,
)

KEPT_VERSIONS, KEPT_TIME = 10, timedelta(hours=1)
"""A data file that is replaced stays for so many manifests and for so long: somebody may be reading it."""

SWEPT = 50
"""At each so-manieth manifest, files are looked for that no manifest names: of runs that died."""

_CLAIMS = "claims"
_CLAIM_ENDS = 600.0  # seconds: whoever claimed a number publishes it at once, or is dead
_TRIES, _WAIT = 20, 0.2
_NUMBER = re.compile(r"([0-9]{8})[-.]")


class TakenError(TablesError):
    """Another run published meanwhile."""


@dataclass(slots=True)
class Run:
    """One attempt to go on from ``base``. ``token`` is in the names of all its files."""

    place: Place
    base: Manifest
    now: datetime
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def prefix(self) -> str:
        """What names of its data files begin with."""
        return f"{self.base.version + 1:08d}-{self.token}"

    def publish(self, manifest: Manifest) -> Manifest:
        """Make it current, and remove what is old. Raises TakenError, and OSError."""
        kept, old = _outdated(manifest, self.now)
        _create(self.place, self.token, kept)
        with suppress(OSError):  # what stays is found by a later run
            _remove(self.place, [*old, *_old_manifests(self.place, kept, self.now)])
            if kept.version % SWEPT == 0:
                sweep(self.place, kept, self.now)
        return kept

    def discard(self, paths: Iterable[str]) -> None:
        """Remove data files that will never be current."""
        self.place.remove(paths)


def _outdated(manifest: Manifest, now: datetime) -> tuple[Manifest, list[str]]:
    """Which data files may go, and the manifest without a word of them."""
    staying: list[Replaced] = []
    going: list[Replaced] = []
    for one in manifest.replaced:
        old = one.version <= manifest.version - KEPT_VERSIONS
        (going if old and now - datetime.fromisoformat(one.at) >= KEPT_TIME else staying).append(one)
    return replace(manifest, replaced=tuple(staying)), [one.path for one in going]


def _old_manifests(place: Place, manifest: Manifest, now: datetime) -> list[str]:
    chosen = fs.FileSelector(place.path(MANIFESTS), allow_not_found=True)
    found = []
    for info in place.system.get_file_info(chosen):
        number = _NUMBER.match(info.base_name)
        if number and int(number[1]) <= manifest.version - KEPT_VERSIONS and _is_old(info, now):
            found.append(f"{MANIFESTS}/{info.base_name}")
    return found


def _is_old(info: Any, now: datetime) -> bool:
    return info.mtime is not None and now - info.mtime.astimezone(UTC) >= KEPT_TIME


def sweep(place: Place, manifest: Manifest, now: datetime) -> list[str]:
    """Remove data files of runs that died: no manifest names them, and their number is long published.

    Returns their paths below the tables. Raises OSError.
    """
    named = {one.path for files in manifest.tables.values() for one in files}
    named |= {one.path for one in manifest.replaced}
    found = []
    for table in manifest.tables:
        chosen = fs.FileSelector(place.path(table), allow_not_found=True, recursive=True)
        for info in place.system.get_file_info(chosen):
            path = info.path[len(place.root) + 1 :] if info.path.startswith(f"{place.root}/") else ""
            number = _NUMBER.match(info.base_name)
            ended = number and int(number[1]) <= manifest.version - KEPT_VERSIONS
            if info.type == fs.FileType.File and ended and path and path not in named and _is_old(info, now):
                found.append(path)
    _remove(place, found)
    return found


def _remove(place: Place, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            place.system.delete_file(place.path(path))


def _create(place: Place, token: str, manifest: Manifest) -> None:
    text, name = manifest.as_json().encode(), name_of(manifest.version)
    if place.versions()[-1:] >= [manifest.version]:  # its own file may be so old that it is gone
        created = False
    elif place.is_local:
        created = _link(Path(place.path(MANIFESTS)), name, token, text)
    elif place.system.type_name == "hdfs":
        created = _move(place, name, token, text)
    else:
        created = _claim(place, name, token, text)
    if not created:
        raise TakenError(
            f"another run has published version {manifest.version} of the tables in {shown(place.uri)} "
            "meanwhile: nothing of it is lost, and nothing of this run is kept. Run it again"
        )


def _link(directory: Path, name: str, token: str, text: bytes) -> bool:
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f".{name}.{token}"
    with draft.open("xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, directory / name)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    sync(str(directory))
    return True


def _move(place: Place, name: str, token: str, text: bytes) -> bool:
    """HDFS moves a file to a name only if nothing has it."""
    place.system.create_dir(place.path(MANIFESTS), recursive=True)
    draft = place.path(MANIFESTS, f".{name}.{token}")
    with place.system.open_output_stream(draft) as file:
        file.write(text)
    try:
        place.system.move(draft, place.path(MANIFESTS, name))
    except OSError:
        place.system.delete_file(draft)
        if place.system.get_file_info(place.path(MANIFESTS, name)).type == fs.FileType.NotFound:
            raise
        return False
    return True


def _claim(place: Place, name: str, token: str, text: bytes) -> bool:
    for _ in range(_TRIES):
        with _claimed(place, name, token) as others:
            if place.system.get_file_info(place.path(MANIFESTS, name)).type != fs.FileType.NotFound:
                return False
            if not others:
                with place.system.open_output_stream(place.path(MANIFESTS, name)) as file:
                    file.write(text)
                return True
        time.sleep(random.uniform(0, _WAIT))  # noqa: S311  # so that one of two goes first
    raise TakenError(f"other runs publish in {shown(place.uri)} at this moment: run it again")


@contextmanager
def _claimed(place: Place, name: str, token: str) -> Iterator[bool]:
    """While it lasts, the number is claimed. True if somebody else claims it, too."""
    mine = f"{name}.{token}"
    with place.system.open_output_stream(place.path(_CLAIMS, mine)) as file:
        file.write(b"")
    try:
        infos = {
            one.base_name: one for one in place.system.get_file_info(fs.FileSelector(place.path(_CLAIMS)))
        }
        now = infos[mine].mtime
        yield any(
            other != mine
            and other.startswith(f"{name}.")
            and (now - info.mtime).total_seconds() < _CLAIM_ENDS
            for other, info in infos.items()
        )
    finally:
        place.system.delete_file(place.path(_CLAIMS, mine))
