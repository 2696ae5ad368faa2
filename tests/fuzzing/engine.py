"""Runs one target for a while, and says what came of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from .registry import Target
from .seeds import TOKENS

ROOT = Path(__file__).parents[2]
FINDINGS = Path(__file__).parent / "findings"
"""Inputs that once broke an invariant, in a folder for each target: the tests try them all."""

LONGEST = 4096
"""Octets of an input."""

_PROGRESS = re.compile(r"^#(\d+)\s.*?cov: (\d+)")
_EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)")
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Broken|Refused|Malformed|Invalid|Failed|Interrupted)\b")
_LIMIT = "ERROR: libFuzzer"
_SLOW = "25"  # seconds for one input
_MEMORY = "1500"  # MiB
_LATE = 60.0  # seconds beyond its time after which a fuzzer is ended


@dataclass(frozen=True, slots=True)
class Run:
    """``broken``: the exception, '' when the invariant held; ``finding``: where its input was put."""

    target: str
    executions: int
    coverage: int
    broken: str = ""
    finding: Path | None = None


def installed() -> bool:
    return find_spec("atheris") is not None


def fuzz(target: Target, *, seconds: int, seed: int, executed: Callable[[int], None]) -> Run:
    """Run a target; ``executed`` hears of the executions so far. The process is gone on return."""
    with tempfile.TemporaryDirectory(prefix="shadowrelay-fuzz-") as made:
        corpus, words, found = Path(made) / "corpus", Path(made) / "words", Path(made) / "found"
        corpus.mkdir()
        found.mkdir()
        for data in target.seeds():
            (corpus / sha256(data).hexdigest()[:16]).write_bytes(data)
        words.write_text("".join(f'"{_quoted(token)}"\n' for token in TOKENS), "ascii")
        options = [
            f"-max_total_time={seconds}",
            f"-seed={seed or 1}",  # libFuzzer takes 0 for a random one
            f"-max_len={LONGEST}",
            f"-dict={words}",
            f"-artifact_prefix={found}/",
            f"-timeout={_SLOW}",
            f"-rss_limit_mb={_MEMORY}",
            "-print_final_stats=1",
            str(corpus),
        ]
        command = [sys.executable, "-m", f"{__package__}.child", target.name, *options]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        try:
            return _followed(process, target, found, executed)
        finally:
            process.kill()
            process.wait()


def _followed(
    process: subprocess.Popen[str], target: Target, found: Path, executed: Callable[[int], None]
) -> Run:
    executions = coverage = 0
    said: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        if progress := _PROGRESS.match(line):
            executions, coverage = int(progress[1]), int(progress[2])
            executed(executions)
        elif final := _EXECUTED.match(line):
            executions = int(final[1])
        else:
            said = [*said[-400:], line.rstrip()]
    status = process.wait(_LATE)
    if status == 0:
        return Run(target.name, executions, coverage)
    return Run(target.name, executions, coverage, _reason(said, status), _kept(target, found))


def _reason(said: list[str], status: int) -> str:
    """The last exception, or what libFuzzer says of a limit of time or memory."""
    last = [line for line in said if _EXCEPTION.match(line)] or [line for line in said if _LIMIT in line]
    return last[-1] if last else f"ended with status {status}"


def _kept(target: Target, found: Path) -> Path | None:
    """Move the input that broke the invariant to where the tests find it."""
    for artifact in sorted(found.iterdir()):
        data = artifact.read_bytes()
        place = FINDINGS / target.name / f"{artifact.name.partition('-')[0]}-{sha256(data).hexdigest()[:12]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return place
    return None


def _quoted(token: str) -> str:
    return "".join(
        chr(octet) if 0x20 <= octet < 0x7F and octet not in b'"\\' else f"\\x{octet:02x}"
        for octet in token.encode()
    )
