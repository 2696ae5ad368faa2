"""deploy/systemd: the unit is hardened, and a node lives under it; its example settings are right."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from running_lab import wait_until

from shadowmailbox.settings import load_mailbox_settings
from shadowrelay import authority
from shadowrelay.node_clock import TOLD_BOOT_ID
from shadowrelay.settings import Settings, parse_duration, settings_from_tree, settings_warnings
from shadowrelay.workers.supervisor import GRACE
from tests.deploy import booted

HERE = booted.ROOT / "deploy" / "systemd"
UNIT = HERE / "shadowrelay.service"
MAILBOX = HERE / "shadowrelay-mailbox.service"
EXPOSURE = 2.5
NAME = "mx1.example.net"


def certificates(directory: Path) -> Path:
    """Those that the example names, of an authority of the test's own."""
    made, now = directory / "certificates", datetime.now(UTC)
    made.mkdir()
    ca = authority.init(directory / "ca", name="members", now=now)
    pair = authority.issue(directory / "ca", NAME, out=directory / "issued", now=now)
    shutil.copy(ca.certificate, made / "members-ca.pem")
    for name in ("smtp", "member"):
        shutil.copy(pair.certificate, made / f"{name}.pem")
        shutil.copy(pair.key, made / f"{name}.key")
    return made


def example(certificates: Path) -> Settings:
    text = (HERE / "settings.toml").read_text("utf-8").replace("/etc/shadowrelay", str(certificates))
    return settings_from_tree(tomllib.loads(text), source="settings.toml")


def setting(name: str, unit: Path = UNIT) -> str:
    found = re.findall(rf"^{name}=(.*)$", unit.read_text("utf-8"), re.MULTILINE)
    assert len(found) == 1, f"{name}: {found}"
    return str(found[0])


def test_the_example_is_right_and_raises_no_warning(tmp_path: Path):
    assert settings_warnings(example(certificates(tmp_path))) == []


def test_systemd_waits_longer_for_the_end_than_the_node_takes(tmp_path: Path):
    settings = example(certificates(tmp_path))
    assert parse_duration(setting("TimeoutStopSec")) >= settings.drain_timeout + timedelta(seconds=GRACE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (systemd) is missing")
@pytest.mark.parametrize("unit", [UNIT, MAILBOX], ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_odd_in_the_unit(unit: Path, tmp_path: Path):
    """But that the program is installed elsewhere."""
    there = tmp_path / unit.name
    there.write_text(re.sub("/opt/shadowrelay/venv/bin/[a-z]+", "/bin/true", unit.read_text("utf-8")))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", there],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_the_directories_of_the_example_are_those_that_the_unit_makes(tmp_path: Path):
    settings = example(certificates(tmp_path))
    assert settings.data_dir == Path("/var/lib") / setting("StateDirectory")
    assert settings.tracking.directory == Path("/var/log") / setting("LogsDirectory")


def test_the_mailbox_service_has_its_table_where_its_unit_makes_room_and_time_to_finish():
    settings = load_mailbox_settings(HERE / "mailbox.toml", {})
    assert settings.table.parent == Path("/var/lib") / setting("StateDirectory", MAILBOX)
    assert parse_duration(setting("TimeoutStopSec", MAILBOX)) > settings.drain_timeout
    assert setting("ExecStart", MAILBOX).endswith("shadowmailbox --config /etc/shadowrelay/mailbox.toml")


@pytest.mark.parametrize("unit", [UNIT, MAILBOX], ids=lambda unit: unit.stem)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (systemd) is missing")
def test_its_exposure_is_below_what_was_promised(unit: Path):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        check=False,
        capture_output=True,
        text=True,
    )
    found = re.search(rf"Overall exposure level for {unit.name}: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) < EXPOSURE


def told(directory: Path) -> str:
    """What the console and the script said so far."""
    said = (directory / name for name in ("console", "said"))
    return "".join(file.read_text() for file in said if file.exists())


@pytest.mark.slow
@pytest.mark.skipif(booted.missing() != "", reason=booted.missing())
def test_a_node_takes_mail_and_ends_in_order_under_a_real_systemd(tmp_path: Path):
    """Alone, so that it takes mail exposed; on a disk of memory, so that little of it need be free."""
    environment = " ".join(
        [
            "SHADOWRELAY_REJECT_MESSAGE_ON_SHADOW_FAILURE=false",
            "SHADOWRELAY_MINIMUM_FREE_DISK=1MiB",
            "SHADOWRELAY_DRAIN_TIMEOUT=2s",
        ]
    )
    script = Path(__file__).with_name("watch_unit.py")
    with booted.booted(tmp_path, certificates(tmp_path), script, environment) as result:
        wait_until(result.exists, "the unit was watched to its end", 120, partial(told, tmp_path))
        found = json.loads(result.read_text())
    assert found["reply"].startswith("250 2.6.0 "), told(tmp_path)
    assert found["started"]["ActiveState"] == "active"
    assert found["told"][TOLD_BOOT_ID] == found["boot"].replace("-", "")
    assert found["modes"] == {
        "/var/lib/shadowrelay": "700 shadowrelay",
        "/var/log/shadowrelay": "750 shadowrelay",
    }
    process = found["process"]
    assert process["Uid"].split()[0] != "0"
    assert int(process["CapEff"], 16) == 1 << 10  # CAP_NET_BIND_SERVICE
    assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")
    stopped = found["stopped"]
    assert (stopped["ActiveState"], stopped["Result"], stopped["ExecMainStatus"]) == (
        "inactive",
        "success",
        "0",
    )


@pytest.mark.slow
@pytest.mark.skipif(booted.missing() != "", reason=booted.missing())
def test_the_mailbox_service_delivers_once_and_forgets_under_a_real_systemd(tmp_path: Path):
    script, nothing = Path(__file__).with_name("watch_mailbox_unit.py"), tmp_path / "none"
    environment = "SHADOWRELAY_MAILBOX_DRAIN_TIMEOUT=2s"
    nothing.mkdir()
    with booted.booted(tmp_path, nothing, script, environment, MAILBOX.name) as result:
        wait_until(result.exists, "the unit was watched to its end", 120, partial(told, tmp_path))
        found = json.loads(result.read_text())
    assert found.get("replies") == ["250 2.0.0 ok", "250 2.0.0 Duplicate dropped, delivered before"], told(
        tmp_path
    )
    assert (found["forgotten"], found["replies_after"]) == ({"forgotten": 1}, "250 2.0.0 ok")
    directory, table, control = found["modes"].values()
    assert (directory, control) == ("700 shadowrelay", "600 shadowrelay")
    assert table.endswith(" shadowrelay")
    ended = {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0", "NRestarts": "0"}
    assert {name: found["stopped"][name] for name in ended} == ended
