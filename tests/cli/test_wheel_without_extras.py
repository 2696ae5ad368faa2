"""A wheel that is installed without extras: what it can do, and what it says of the rest.

What the programs depend on is lent by the environment of the tests, and no extra is. Only what builds the
wheel is fetched, if that environment has an older one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, requires, version
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(*words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def needed(name: str, extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """The distributions that it depends on, and theirs."""
    for line in requires(name) or ():
        wanted = Requirement(line)
        asked = [default_environment() | {"extra": extra} for extra in (*extras, "")]
        if wanted.marker is None or any(wanted.marker.evaluate(one) for one in asked):  # type: ignore[arg-type]
            yield canonicalize_name(wanted.name)
            yield from needed(wanted.name, frozenset(wanted.extras))


def can_build() -> bool:
    """Has this environment what ``pyproject.toml`` builds with?"""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    return all(Requirement(one).specifier.contains(version(Requirement(one).name)) for one in wanted)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of a wheel that was installed are."""
    place = tmp_path_factory.mktemp("wheel")
    quiet = ("-q", "--disable-pip-version-check", "--no-deps")
    pip = (sys.executable, "-m", "pip")
    source = place / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    own = ("--no-build-isolation",) if can_build() else ()
    run(*pip, "wheel", *quiet, *own, "-w", place, source)
    (wheel,) = place.glob("shadowrelay-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
    run(*pip, "--python", place / "venv" / "bin" / "python", "install", *quiet, "--no-index", wheel)
    (site,) = (place / "venv" / "lib").glob("python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    for name in sorted(set(needed("shadowrelay"))):
        for top in {Path(str(one)).parts[0] for one in distribution(name).files or ()} - {
            "..",
            "__pycache__",
        }:
            if not (site / top).exists():
                (site / top).symlink_to(here / top)
    return place / "venv" / "bin"


def test_a_wheel_has_no_extra_and_its_audit_says_which_it_needs(programs: Path):
    run(programs / "python", "-c", "import pyspark", status=1)
    said = run(programs / "shadowaudit", "--help", status=2)
    assert "pip install 'shadowrelay[audit]'" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("program", ["shadowrelay", "shadowlab", "shadowmailbox"])
def test_the_other_programs_of_a_wheel_say_how_they_are_used(programs: Path, program: str):
    assert "Usage:" in run(programs / program, "--help").stdout


@pytest.mark.parametrize("kind", ["", "--mx", "--outbound", "--behind"])
def test_a_wheel_is_enough_for_a_settings_file_and_a_unit(programs: Path, tmp_path: Path, kind: str):
    shadowrelay, file = programs / "shadowrelay", tmp_path / "settings.toml"
    printed = run(shadowrelay, "config", "example", *kind.split()).stdout
    file.write_text(printed.replace("/var/lib/shadowrelay", str(tmp_path)))
    assert run(shadowrelay, "config", "check", file).stdout == "OK\n"
    unit = run(shadowrelay, "config", "unit", file).stdout
    assert re.search(
        rf"^ExecStart={re.escape(str(shadowrelay))} run {re.escape(str(file))}$", unit, re.MULTILINE
    )
