"""A file system of its own in a file, whose power can be cut: what was not synced is gone."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadowrelay.lab.guard import undisturbed

from .needs import Skip, need
from .nodes import PATIENCE, Stuck

FILE_SYSTEMS = ("ext4", "xfs")

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of linux/fs.h, the same for every file system that has it
_NO_LOG_FLUSH = 2  # not even the journal is written out: what a power cut leaves
_OCTETS = {"ext4": 2 << 30, "xfs": 2 << 30}  # sparse; xfs wants at least 300 MiB


class Volume:
    """``place`` is where it is mounted."""

    def __init__(self, image: Path, place: Path) -> None:
        self.place = place
        self._image = image

    def mount(self) -> None:
        """Mount it; after a cut the file system repairs itself from its journal. Raises Stuck.

        On a loop device of its own: as long as anybody else's mount namespace has the old one mounted, it
        would come back as it was cut.
        """
        device = _run("losetup", "--find", "--show", str(self._image))
        try:
            _run("mount", device, str(self.place))
        finally:
            _run("losetup", "--detach", device)  # as soon as nobody has it mounted

    def cut(self) -> None:
        """From now on no write and no fsync reaches it, and what was not on it is lost at ``restore``.

        An fdatasync that is under way may report success all the same: in one of eight cuts of an ext4, for
        up to 7 ms (measured with a process that does nothing else). Never one that returned before.
        """
        handle = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def restore(self) -> None:
        """Unmount and mount again. Nobody may have files open there. Raises Stuck."""
        with undisturbed():
            self.unmount()
            self.mount()

    def unmount(self) -> None:
        """Raises Stuck."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                _run("umount", str(self.place))
            except Stuck:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)  # the kernel may still be at the end of the process that was killed
            else:
                return


@contextmanager
def mounted(directory: Path, file_system: str) -> Iterator[Volume]:
    """A new file system under the directory, unmounted at exit. Raises Skip where that cannot be had."""
    need(f"mkfs.{file_system}", "losetup", "mount", "umount")
    if os.geteuid() != 0:
        raise Skip("only root may mount a file system")
    directory.mkdir(parents=True)
    image, place = directory / "image", directory / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(_OCTETS[file_system])
    _run(f"mkfs.{file_system}", "-q", str(image))
    volume = Volume(image, place)
    try:
        volume.mount()
    except Stuck as reason:
        raise Skip(f"no loop mount on this machine: {reason}") from reason
    try:
        yield volume
    finally:
        volume.unmount()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, process_group=0)
    if done.returncode:
        raise Stuck(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()
