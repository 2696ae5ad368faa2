"""The reader of replies, and an oracle that was written from RFC 5321 4.2.1: they read the same."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from odd_answers import MUTATIONS, SILENT, UNREADABLE, answers, read_by_rfc, well_formed

from shadowrelay.wire.replies import ReplyError, ReplyReader

REPLIES = 3
MOST = 4096


def read(said: bytes, sizes: random.Random, reader: ReplyReader) -> list[str]:
    """What the reader makes of that, however it is cut."""
    found: list[str] = []
    at = 0
    while at < len(said) and len(found) < REPLIES:
        step = sizes.choice((1, 2, 7, 600, 70_000))
        # Line by line, as a connection does: what is good counts although rubbish follows in the segment.
        for line in said[at : at + step].splitlines(keepends=True) if step > 1 else [said[at : at + 1]]:
            try:
                found += [str(reply.code) for reply in reader.feed(line)]
            except ReplyError:
                return found + [UNREADABLE] * (REPLIES - len(found))
        at += step
    left = REPLIES - len(found)
    return (found + [UNREADABLE if reader.begun else SILENT] * left)[:REPLIES]


@pytest.mark.parametrize("block", range(10))
def test_the_reader_reads_what_the_rfc_says(block: int) -> None:
    for seed in range(block * 1000, block * 1000 + 1000):
        said = answers(seed, REPLIES)
        got = read(said, random.Random(seed), ReplyReader(MOST, cuts=True))
        assert got == read_by_rfc(said, REPLIES), (seed, said[:200])


def test_every_cut_of_a_reply_is_unreadable_or_nothing() -> None:
    for reply in (b"250 ok\r\n", b"250\r\n", b"250-one\r\n250 two\r\n", b"250-\n250\n"):
        for at in range(len(reply)):
            expected = [UNREADABLE] * 3 if at else [SILENT] * 3
            assert read(reply[:at], random.Random(at), ReplyReader(MOST, cuts=True)) == expected
            assert read_by_rfc(reply[:at], 3) == expected


def test_the_generator_makes_every_mutation_and_both_verdicts() -> None:
    draw = random.Random(1)
    for mutation in MUTATIONS:
        verdicts = {read_by_rfc(mutation(well_formed(draw), draw), 1)[0] == UNREADABLE for _ in range(300)}
        assert verdicts & {True} or mutation.__name__ in {"_doubled", "_long"}
    found = [read_by_rfc(answers(seed, REPLIES), REPLIES) for seed in range(2000)]
    assert sum(UNREADABLE in each for each in found) > 300
    assert sum(UNREADABLE not in each for each in found) > 300


def test_a_reply_of_ten_megabytes_is_read_to_its_end_in_little_memory() -> None:
    reader = ReplyReader(64 * 1024, cuts=True)
    line = b"250-" + b"x" * 70_000 + b"\r\n"
    tracemalloc.start()
    try:
        for _ in range(150):
            assert reader.feed(line) == []
        (reply,) = reader.feed(b"250 done\r\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reply.code == 250
    assert peak < 1024 * 1024
    assert [one.code for one in reader.feed(b"251 next\r\n")] == [251]


def test_a_long_reply_whose_last_line_has_another_code_is_unreadable() -> None:
    reader = ReplyReader(100, cuts=True)
    for _ in range(100):
        assert reader.feed(b"250-" + b"x" * 100 + b"\r\n") == []
    with pytest.raises(ReplyError):
        reader.feed(b"550 no\r\n")
