"""Each target on its seeds, on what once broke it, and on inputs made of both; the fuzzer itself for a
moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import cli
from .engine import FINDINGS, ROOT, installed
from .registry import Target
from .seeds import TOKENS
from .targets import TARGETS

EVERY = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Sessions log what strangers do: here that is the whole input."""
    with structlog.testing.capture_logs():
        yield


def findings() -> list[tuple[str, str]]:
    return [(path.parent.name, path.name) for path in sorted(FINDINGS.glob("*/*"))]


@EVERY
def test_a_target_states_its_invariant_in_one_sentence(target: Target):
    assert target.invariant.endswith(".")
    assert ". " not in target.invariant


@EVERY
def test_the_invariant_holds_for_the_seeds(target: Target):
    seeds = list(target.seeds())
    assert seeds
    for data in seeds:
        target.check(data)


@pytest.mark.parametrize(("name", "file"), findings())
def test_the_invariant_holds_for_what_once_broke_it(name: str, file: str):
    TARGETS[name].check((FINDINGS / name / file).read_bytes())


@EVERY
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.slow
def test_the_invariant_holds_for_pieces_of_the_seeds_and_any_octets(target: Target, data: st.DataObject):
    seeds = list(target.seeds())

    def slices(seed: bytes) -> st.SearchStrategy[bytes]:
        ends = st.integers(0, len(seed))
        return st.tuples(ends, ends).map(lambda pair: seed[min(pair) : max(pair)])

    piece = st.one_of(
        st.sampled_from(seeds),
        st.sampled_from(seeds).flatmap(slices),
        st.sampled_from(TOKENS).map(str.encode),
        st.binary(max_size=20),
    )
    target.check(b"".join(data.draw(st.lists(piece, max_size=6))))


def test_without_atheris_fuzzing_is_skipped_and_says_what_it_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cli, "installed", lambda: False)
    done = CliRunner().invoke(cli.command, [])
    assert done.exit_code == 77
    assert "skipped: atheris is not installed" in done.stderr


@pytest.mark.skipif(
    not installed(), reason="atheris is not installed: pip install -e '.[fuzz]' -c constraints.txt"
)
def test_the_fuzzer_runs_a_target_and_counts_its_inputs():
    command = [sys.executable, "-m", "tests.proof", "fuzz", "--target", "xtext", "--seconds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)
    assert run["executions"] > 100
    assert run["coverage"] > 0
