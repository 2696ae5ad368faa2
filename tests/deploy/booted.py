"""A systemd of its own, as process 1 of namespaces of its own, that runs the unit of deploy/systemd.

Everything that it changes is in its own mounts, on its own network and below a control group of its own; when
process 1 is killed, all of it is gone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.apart import OWN_MACHINE, lacking

ROOT = Path(__file__).parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
TARGETS = ("sysinit", "basic", "sockets", "paths", "slices", "timers", "shutdown", "umount", "final")

BOOT = (
    OWN_MACHINE
    + """\
for place in /run /opt /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs $place; done
systemd-sysusers {root}/deploy/systemd/shadowrelay.sysusers.conf
mkdir -p /opt/shadowrelay/python /opt/shadowrelay/packages /opt/shadowrelay/src /opt/shadowrelay/venv/bin
mount --rbind {python} /opt/shadowrelay/python
mount --bind {packages} /opt/shadowrelay/packages
mount --bind {root}/src /opt/shadowrelay/src
install -m 755 {files}/shadowrelay {files}/shadowmailbox /opt/shadowrelay/venv/bin/
install -d -m 750 -g shadowrelay /etc/shadowrelay
install -m 640 -g shadowrelay {files}/etc/* /etc/shadowrelay/
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export container=other SYSTEMD_UNIT_PATH={units}
exec {systemd} --system --unit=watch.service --log-target=console --log-level=warning --show-status=no
"""
)

PROGRAM = """\
#!/opt/shadowrelay/python/bin/python{version}
import sys
sys.path[:0] = ["/opt/shadowrelay/src", "/opt/shadowrelay/packages"]
from {program}.__main__ import main
main()
"""

# A Python that was built with a shared library looks for it where it was installed: out of the unit's sight.
DROP_IN = """\
[Service]
Environment=LD_LIBRARY_PATH=/opt/shadowrelay/python/lib
StandardOutput=append:{said}
StandardError=append:{said}
Environment={environment}
"""

WATCH = """\
[Unit]
Wants={unit}
After={unit}
[Service]
Type=oneshot
ExecStart=/opt/shadowrelay/python/bin/python{version} {script} {result}
StandardOutput=append:{said}
StandardError=append:{said}
"""


@cache
def missing() -> str:
    """What this machine lacks for it; empty when nothing is."""
    if os.geteuid() != 0:
        return "a systemd of one's own takes root"
    if not SYSTEMD.exists():
        return "systemd is not installed"
    if _control_groups() is None:
        return "no control groups of version 2 are mounted"
    return lacking(("systemd-sysusers",), "-mpfCiun")


def _control_groups() -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


@contextmanager
def booted(
    directory: Path,
    certificates: Path,
    script: Path,
    environment: str,
    unit: str = "shadowrelay.service",
) -> Iterator[Path]:
    """Start a unit, and beside it a script that is given the path of its result; yields that path.

    ``certificates``: what /etc/shadowrelay holds beside the settings. What all said is in ``directory/said``.
    """
    units, files, result = directory / "units", directory / "files", directory / "result"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    said = directory / "said"
    (units / f"{unit}.d").mkdir(parents=True)
    (files / "etc").mkdir(parents=True)
    (directory / "scratch").mkdir()
    for target in TARGETS:
        shutil.copy(SYSTEMD.parent / "system" / f"{target}.target", units)
    shutil.copy(ROOT / "deploy/systemd" / unit, units)
    (units / f"{unit}.d" / "test.conf").write_text(DROP_IN.format(said=said, environment=environment))
    (units / "watch.service").write_text(
        WATCH.format(version=version, script=script, result=result, said=said, unit=unit)
    )
    for program in ("shadowrelay", "shadowmailbox"):
        (files / program).write_text(PROGRAM.format(version=version, program=program))
    for file in (*(ROOT / "deploy/systemd").glob("*.toml"), *certificates.iterdir()):
        shutil.copy(file, files / "etc")
    boot = directory / "boot"
    boot.write_text(
        BOOT.format(
            scratch=directory / "scratch",
            root=ROOT,
            python=sys.base_prefix,
            packages=sysconfig.get_path("purelib"),
            files=files,
            units=units,
            systemd=SYSTEMD,
        )
    )
    with _control_group() as group, (directory / "console").open("wb") as console:
        inside = f"echo $$ >{group}/cgroup.procs && exec unshare -mpfCiun --kill-child=KILL bash {boot}"
        process = subprocess.Popen(["bash", "-c", inside], stdout=console, stderr=console)
        try:
            yield result
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def _control_group() -> Iterator[Path]:
    parent = _control_groups()
    assert parent is not None
    group = parent / f"shadowrelay-test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        yield group
    finally:
        end = time.monotonic() + 10
        while group.exists() and time.monotonic() < end:
            for inner, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(inner)
            time.sleep(0.05)
