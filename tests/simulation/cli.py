"""The command line: many seeds with totals, or one seed with its history."""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from shadowrelay.cli.progress import bar

from .checks import Verdict
from .records import run_records
from .scenario import record
from .seeds import run_seed


def _one(seed: int, *, hosts: bool = False, still: bool = False, records: bool = False) -> Verdict:
    if records:
        return run_records(seed)[0]
    return run_seed(seed, hosts=hosts, still=still)[0]


def run_many(
    seeds: Sequence[int], jobs: int, *, hosts: bool = False, still: bool = False, records: bool = False
) -> Iterator[Verdict]:
    """Verdicts in no particular order."""
    one = partial(_one, hosts=hosts, still=still, records=records)
    if jobs <= 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=20)


class Totals:
    """The sums of many seeds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.turned_away: Counter[str] = Counter()
        self.failures: dict[int, list[str]] = {}

    def add(self, verdict: Verdict) -> None:
        for name in (
            "acknowledged",
            "attempted",
            "delivered",
            "lost",
            "unexpected",
            "recovered",
            "excused",
            "resubmitted",
        ):
            self.counts[name] += getattr(verdict, name)
        self.counts["seeds"] += 1
        self.counts["virtual seconds"] += round(verdict.virtual)
        self.faults += verdict.faults
        self.duplicates += verdict.duplicates
        self.missing += verdict.missing
        self.turned_away += verdict.turned_away
        if not verdict.ok:
            self.failures[verdict.seed] = verdict.problems

    def as_dict(self) -> dict[str, object]:
        return {
            **self.counts,
            "faults": dict(sorted(self.faults.items())),
            "duplicates": dict(sorted(self.duplicates.items())),
            "not resubmitted": dict(sorted(self.missing.items())),
            "turned away": dict(sorted(self.turned_away.items())),
            "failures": {str(seed): problems for seed, problems in sorted(self.failures.items())},
        }

    def lines(self) -> Iterator[str]:
        for name, count in self.counts.items():
            yield f"{name:<18}{count:>10,}"
        sums = (
            ("faults", self.faults),
            ("turned away", self.turned_away),
            ("duplicates", self.duplicates),
            ("not resubmitted", self.missing),
        )
        for title, counter in sums:
            yield f"{title:<18}{sum(counter.values()):>10,}"
            for name, count in sorted(counter.items()):
                yield f"  {name:<44}{count:>8,}"
        for seed, problems in sorted(self.failures.items())[:40]:
            yield f"FAILED seed {seed}: {problems[0]}"
        if self.failures:
            yield f"{len(self.failures)} seeds failed: {' '.join(map(str, sorted(self.failures)[:200]))}"
            yield "see one of them with: scripts/simulate --seed N (and --hosts or --records as here)"


def _added(verdicts: Iterable[Verdict], total: int) -> Totals:
    totals = Totals()
    with bar("simulate", total) as shown:
        for verdict in verdicts:
            totals.add(verdict)
            shown.step(f"{len(totals.failures)} failed" if totals.failures else "")
    return totals


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last) + 1) if dots else range(int(first))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="simulate", description="A whole boundary on a virtual clock, under faults."
    )
    parser.add_argument("--seed", type=int, help="replay one seed and print its history")
    parser.add_argument(
        "--seeds", type=_range, default=range(1000), metavar="A..B", help="run these (default 0..999)"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--hosts", action="store_true", help="nodes of several workers, and faults of whole hosts"
    )
    parser.add_argument(
        "--records",
        action="store_true",
        help="the product's own loops: records that every member has are given, changed and forgotten",
    )
    parser.add_argument("--still", action="store_true", help="clocks that would step stand still")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="rewrite the recorded output of the scenarios")
    given = parser.parse_args(arguments)
    if given.record:
        print("\n".join(record()) or "nothing changed")
        return 0
    if given.seed is not None:
        if given.records:
            verdict, history = run_records(given.seed)
        else:
            verdict, history = run_seed(
                given.seed, verbose=not given.json, hosts=given.hosts, still=given.still
            )
        for line in history:
            print(line)
        totals = Totals()
        totals.add(verdict)
    else:
        verdicts = run_many(
            given.seeds, given.jobs, hosts=given.hosts, still=given.still, records=given.records
        )
        totals = _added(verdicts, len(given.seeds))
    if given.json:
        print(json.dumps(totals.as_dict(), indent=2))
    else:
        print("\n".join(totals.lines()))
        if given.seed is not None:
            for problem in totals.failures.get(given.seed, []):
                print(f"PROBLEM {problem}")
            print("verdict: " + ("failed" if totals.failures else "good"))
    return 1 if totals.failures else 0
