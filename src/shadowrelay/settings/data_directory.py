"""Whether a data directory can hold a database: what keeps it from that, and what an operator should know."""

from __future__ import annotations

import os
import re
from pathlib import Path

from shadowrelay.core.values import dataclass
from shadowrelay.settings.errors import SettingError, SettingsInvalid
from shadowrelay.settings.schema import Settings

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"nfs4?|cifs|smb[23]?|smbfs|9p|ceph|glusterfs|lustre|beegfs|afs|ocfs2|gfs2|ncpfs|"
    r"fuse\.(sshfs|glusterfs|ceph.*|s3fs|rclone|davfs.*)|davfs"
)
_LEAST = 16 * 2**20  # octets that a new database and its log need


@dataclass(frozen=True, slots=True)
class DirectoryFindings:
    """``wrong``: it cannot hold a database. ``odd``: what is allowed, and hardly meant."""

    wrong: str = ""
    odd: str = ""


def checked(settings: Settings, database: str) -> list[str]:
    """Warnings about the data directory. ``database``: the name of the file in it. Raises SettingsInvalid.

    A directory that has a database already is only warned of: its node must start, to deliver what is there.
    """
    try:
        found = findings(settings.data_dir, settings.minimum_free_disk)
        there = any(settings.data_dir.glob(f"**/{database}")) if settings.data_dir.is_dir() else False
    except PermissionError:
        return [f"data_dir, {settings.data_dir}: you may not look at it: check it as the user of the node"]
    if found.wrong and not there:
        raise SettingsInvalid(
            [
                SettingError(
                    key="data_dir",
                    value=str(settings.data_dir),
                    source=str(settings.origin("data_dir")),
                    message=f"cannot hold a database: {found.wrong}",
                    allowed="a directory on a local disk, with room, that the node's user may write",
                )
            ]
        )
    return [f"data_dir, {settings.data_dir}: {one}" for one in (found.wrong, found.odd) if one]


def findings(directory: Path, minimum: int, mounts: Path = _MOUNTS) -> DirectoryFindings:
    """What is to say of a data directory. ``minimum``: octets below which mail is put off."""
    place = _nearest(directory)
    if not place.is_dir():
        return DirectoryFindings(f"{place} is no directory")
    kind = _kind(place, mounts)
    if _NETWORK.fullmatch(kind):
        return DirectoryFindings(
            f"{place} is on a network file system ({kind}), whose locks and syncs do not hold"
        )
    space = os.statvfs(place)
    free = space.f_bavail * space.f_frsize
    if free < max(minimum, _LEAST):
        return DirectoryFindings(
            f"{free / 2**20:,.0f} MiB are free there, and mail is put off below {minimum / 2**20:,.0f} MiB "
            "(minimum_free_disk)"
        )
    if not os.access(place, os.W_OK | os.X_OK):
        if place == directory and place.stat().st_uid == os.geteuid():
            return DirectoryFindings("its owner may not write there: chmod 700")
        if place == directory and os.geteuid() != 0:
            return DirectoryFindings(odd="you may not write there; the node's user has to")
        if place == directory:
            return DirectoryFindings("it cannot be written (is it mounted read-only?)")
        return DirectoryFindings(odd=f"it does not exist, and you may not make it in {place}")
    return DirectoryFindings()


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest one above that exists."""
    return next(one for one in (directory, *directory.absolute().parents) if one.exists())


def _kind(place: Path, mounts: Path) -> str:
    """The kind of the file system that a directory is on; empty if it is not known."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    whole, best = place.resolve(), (0, "")
    for line in lines:
        mounted, _, about = line.partition(" - ")
        at = Path(mounted.split()[4].encode().decode("unicode_escape"))
        if whole.is_relative_to(at) and len(at.parts) >= best[0]:
            best = len(at.parts), about.split()[0]
    return best[1]
