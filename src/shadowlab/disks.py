"""Makes a file system in a file: its power can be cut, and it can fail, stall and be full. Needs root."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from shadowlab.errors import LabError
from shadowlab.guard import undisturbed

FILE_SYSTEMS = ("ext4", "xfs")

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of linux/fs.h, the same for all that have it
_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE, FITHAW
_NO_LOG_FLUSH = 2  # do not write out the journal either, as in a power cut
_MAKE = {"ext4": ("mkfs.ext4", "-q", "-m", "0"), "xfs": ("mkfs.xfs", "-q")}
_LEAST = {"ext4": 16 << 20, "xfs": 300 << 20}  # octets
_BALLAST = "ballast"
_BLOCK = 4096
_PATIENCE = 120.0  # seconds for mkfs, mount and the like
_GONE = 0.2  # seconds until an unmounted device is released
_BUSY = 20.0  # seconds until a killed process has closed its files


class Disk:
    """A file system mounted at ``place``. Every method raises LabError; those that fill it OSError too."""

    def __init__(self, image: Path, place: Path) -> None:
        self.place = place
        self.dark = False  # its power is cut
        self.stalled = False
        self._image = image
        self._device = Path()
        self._ballast = place / _BALLAST

    def mount(self) -> None:
        """Mount it; after a cut the file system repairs itself from its journal.

        It uses a new loop device: while another mount namespace has the old device mounted, that device would
        come back as it was when cut.
        """
        device = _run("losetup", "--find", "--show", str(self._image))
        try:
            _run("mount", device, str(self.place))
        finally:
            _run("losetup", "--detach", device)  # takes effect when it is unmounted
        self._device = Path(device)
        self.dark = False

    def cut(self) -> None:
        """Cut the power: no write and no fsync reaches it, and what it lacks is lost at ``restore``.

        An fdatasync under way may report success all the same: in one of eight cuts of an ext4, for up to
        7 ms (measured with a process that does nothing else). An fdatasync that returned before is safe.
        """
        self.dark = True
        self._ioctl(_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))

    def restore(self) -> None:
        """Unmount and mount again. No process may have files open there."""
        with undisturbed():
            self._unmount()
            if self._is_mounted_elsewhere():
                _run("cp", "--sparse=always", str(self._image), f"{self._image}.copy")
                os.replace(f"{self._image}.copy", self._image)
            self.mount()

    def _is_mounted_elsewhere(self) -> bool:
        """Whether another mount namespace (of a container, for example) still has it mounted. Then the old
        device may write what it still has to the file at any time.
        """
        used_by = Path("/sys/block") / self._device.name / "loop" / "backing_file"
        deadline = time.monotonic() + _GONE
        while used_by.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return used_by.exists()

    def stall(self) -> None:
        """Stall: a process that writes or syncs waits until ``go_on``, and cannot be killed meanwhile."""
        with undisturbed():
            self._ioctl(_FREEZE, struct.pack("i", 0))
            self.stalled = True

    def go_on(self) -> None:
        if self.stalled:
            with undisturbed():
                self._ioctl(_THAW, struct.pack("i", 0))
                self.stalled = False

    @property
    def free(self) -> int:
        """Free octets."""
        return shutil.disk_usage(self.place).free

    def leave(self, octets: int) -> None:
        """Fill it until no more than ``octets`` are free."""
        self.clear()
        if (taken := self.free - octets) > 0:
            with self._ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, taken)

    def fill(self) -> None:
        """Fill it to the last octet."""
        if not self._ballast.exists():
            self.leave(16 * _BLOCK)
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while file.write(bytes(_BLOCK)):
                pass

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def sync(self) -> None:
        """Make durable what processes other than the node wrote there."""
        _run("sync", "--file-system", str(self.place))

    def detach(self) -> None:
        """Unmount it lazily: it ends when the last file there is closed."""
        _run("umount", "--lazy", str(self.place))

    def _unmount(self) -> None:
        deadline = time.monotonic() + _BUSY
        while True:
            try:
                _run("umount", str(self.place))
            except LabError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)  # the kernel may still be ending the killed process
            else:
                return

    def _ioctl(self, request: int, argument: bytes) -> None:
        try:
            handle = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.ioctl(handle, request, argument)
            finally:
                os.close(handle)
        except OSError as problem:
            raise LabError(f"{self.place}: {problem.strerror}") from problem


@contextmanager
def mounted(image: Path, place: Path, octets: int, file_system: str = "ext4") -> Iterator[Disk]:
    """Make a file system of ``octets`` in the file ``image``; unmounted at exit. Raises LabError."""
    try:
        for directory in (image.parent, place):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(octets)  # sparse: takes only the room that is written to
    except OSError as problem:
        raise LabError(f"{problem.filename or image}: {problem.strerror}") from problem
    _run(*_MAKE[file_system], str(image))
    disk = Disk(image, place)
    with ExitStack() as stack:
        with undisturbed():
            disk.mount()
            stack.callback(_let_go, disk)
        place.chmod(0o700)
        yield disk


def _let_go(disk: Disk) -> None:
    with undisturbed():
        try:
            disk.go_on()
        finally:
            disk.detach()


def lacking(file_system: str = "ext4") -> str:
    """What this machine lacks for such disks; empty if nothing."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    for tool in (f"mkfs.{file_system}", "losetup", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"there is no {tool} on this machine"
    with tempfile.TemporaryDirectory(prefix="shadowrelay-disk-") as directory:
        trial = Path(directory)
        try:
            with mounted(trial / "image", trial / "place", _LEAST[file_system], file_system):
                return ""
        except LabError as problem:
            return f"no loop mount on this machine: {problem}"


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE, process_group=0
        )
    except subprocess.TimeoutExpired as problem:
        raise LabError(f"{' '.join(command)}: not done after {_PATIENCE:.0f} s") from problem
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()
