"""What is done with every octet, or with every row. Answers go into arrays that are given.

``words`` are octets eight at a time, from each place on (``Cells.words``); ``keep[n]`` keeps n octets of a
word. A cell is from ``begin`` to ``end``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shadowaudit.core.fingerprint import BY_FIRST, BY_SECOND, FIRST, LANE, SECOND
from shadowaudit.logs.compiled import compiled

Array = Any  # of whole numbers

_QUOTE, _COMMA, _LF, _CR, _DASH, _ENTRY, _APOSTROPHE = b"\",\n\r-;'"
PART = 4096
"""Octets that are looked at in a step."""

_MIXING = 0x1E3779B97F4A7C15
_POSITIVE = (1 << 63) - 1
_ONE, _OTHER, _BY_ONE, _BY_OTHER, _LANE = FIRST, SECOND, BY_FIRST, BY_SECOND, LANE
_ONES = 0x0101010101010101
_SEQUENCE = int.from_bytes(b"S:Seq=", "little")
_CONTENT, _ENVELOPE = (int.from_bytes(one, "little") for one in (b"S:Conten", b"S:Envelo"))
_DIGITS = 18  # that 64 bits always hold

_DATE, _HOUR, _SECOND = (int.from_bytes(one, "little") for one in (b"0000-00-", b"00T00:00", b":00.000Z"))
_BESIDE_1, _BESIDE_2, _BESIDE_3 = (
    int.from_bytes(one, "little")
    for one in (b"\0\0\0\0\x7f\0\0\x7f", b"\0\0\x7f\0\0\x7f\0\0", b"\x7f\0\0\x7f\0\0\0\x7f")
)
_OVER_9 = 0x7676767676767676  # added to an octet, its highest bit is set
_HIGH = -0x7F7F7F7F7F7F7F80  # the highest bit of each octet

ODD, PLAIN, DOUBTFUL = range(3)
"""A row with a wrong number of cells, a plain row, and a row that needs a parser."""

NONE: int = np.iinfo(np.int64).min
"""In place of a moment that was not understood."""


@compiled
def marked(octets: Array, hits: Array, words: Array, marks: Array, ends: Array) -> tuple[int, int]:
    """Where commas, quotes and carriage returns are, and where lines end; how many of each.

    ``hits``: room for a part and a word more; ``words``: the same octets as words, in their order.
    """
    found, lines = 0, 0
    for at in range(0, len(octets), PART):
        part = octets[at : at + PART]
        size = len(part)
        for place in range(size):
            octet = part[place]
            hits[place] = (octet == _COMMA) | (octet == _LF) | (octet == _CR) | (octet == _QUOTE)
        for place in range(size, size + 7):
            hits[place] = 0
        for number in range((size + 7) // 8):
            word = words[number]
            while word:
                below = ((word & -word) - 1) & _ONES  # an octet for each before the first hit
                place = 8 * number + (((below * _ONES) & _POSITIVE) >> 56)
                word &= word - 1
                if part[place] == _LF:
                    ends[lines] = at + place + 1
                    lines += 1
                else:
                    marks[found] = at + place
                    found += 1
    return found, lines


@compiled
def cut(
    begins: Array,
    ends: Array,
    octets: Array,
    marks: Array,
    columns: Array,
    begin: Array,
    end: Array,
    state: Array,
) -> None:
    """Rows taken apart at their commas. ``columns``: for each field the column that takes it, or -1."""
    fields, mark = len(columns), 0
    for row in range(len(begins)):
        at, last = begins[row], ends[row] - 2
        good, quoted, field = last >= at and octets[last] == _CR and octets[last + 1] == _LF, False, 0
        while mark < len(marks) and marks[mark] < at:
            mark += 1
        while mark < len(marks) and marks[mark] < last:
            place = marks[mark]
            mark += 1
            octet = octets[place]
            if octet == _COMMA:
                if field < fields:
                    column = columns[field]
                    if column >= 0:
                        begin[column, row] = at
                        end[column, row] = place
                field += 1
                at = place + 1
            elif octet == _QUOTE:
                quoted = True
            else:
                good = False
        if field < fields:
            column = columns[field]
            if column >= 0:
                begin[column, row] = at
                end[column, row] = last
        state[row] = DOUBTFUL if quoted else PLAIN if good and field == fields - 1 else ODD


@compiled
def numbered(
    begin: Array,
    end: Array,
    words: Array,
    keep: Array,
    table: Array,
    begins: Array,
    ends: Array,
    count: int,
    of: Array,
) -> int:
    """Each cell's number: equal ones have the same. How many there are now; there were ``count``.

    ``table``: the numbers by hash, else -1; ``begins``, ``ends``: where the cell with a number is.
    """
    mask = len(table) - 1
    for row in range(len(begin)):
        at, to = begin[row], end[row]
        size = to - at
        mixed = size
        while at < to:
            word = words[at] & keep[min(to - at, 8)]
            mixed = ((mixed ^ word) * _MIXING) & _POSITIVE
            mixed ^= mixed >> 29
            at += 8
        slot = mixed & mask
        number = table[slot]
        while number >= 0:
            other = begins[number]
            if ends[number] - other == size:
                at = begin[row]
                while at < to and not (words[at] ^ words[other]) & keep[min(to - at, 8)]:
                    at += 8
                    other += 8
                if at >= to:
                    break
            slot = (slot + 1) & mask
            number = table[slot]
        if number < 0:
            number = count
            table[slot], begins[number], ends[number] = number, begin[row], to
            count += 1
        of[row] = number
    return count


@compiled
def beginning(
    begin: Array, end: Array, words: Array, keep: Array, wanted: Array, size: int, found: Array
) -> None:
    """Which cells begin with these words, of so many octets."""
    for row in range(len(begin)):
        at = begin[row]
        same = end[row] - at >= size
        for place in range(len(wanted)):
            same = same and not (words[at + 8 * place] ^ wanted[place]) & keep[min(size - 8 * place, 8)]
        found[row] = same


@compiled
def sequences(
    begin: Array,
    end: Array,
    octets: Array,
    words: Array,
    keep: Array,
    own: Array,
    size: int,
    number: Array,
    rest: Array,
) -> None:
    """Of cells that begin with a sequence and then these words: its number, and where the rest begins.

    Of others -1, and where they begin.
    """
    for row in range(len(begin)):
        at, to = begin[row], end[row]
        number[row], rest[row] = -1, at
        if to - at < 6 or words[at] & keep[6] != _SEQUENCE:
            continue
        at += 6
        digits, found = 0, 0
        while at < to and digits < _DIGITS and octets[at] >= 48 and octets[at] <= 57:
            found = found * 10 + (octets[at] - 48)
            at += 1
            digits += 1
        same = digits > 0 and to - at >= size
        for place in range(len(own)):
            same = same and not (words[at + 8 * place] ^ own[place]) & keep[min(size - 8 * place, 8)]
        if same:
            number[row], rest[row] = found, at + size


@compiled
def digests(
    begin: Array, end: Array, octets: Array, words: Array, keep: Array, rest: Array, number: Array
) -> None:
    """Of cells that end with digests: where these begin, and a number that is the same for the same ones.

    Of others where they end, and -1.
    """
    for row in range(len(begin)):
        first, last = begin[row], end[row]
        at = place = last
        while place > first:
            place -= 1
            if octets[place] == _ENTRY:
                word = words[place + 1]
                if word not in (_CONTENT, _ENVELOPE):
                    break
                at = place
        rest[row], number[row] = at, -1
        if at < last:
            mixed = last - at
            while at < last:
                mixed = ((mixed ^ (words[at] & keep[min(last - at, 8)])) * _MIXING) & _POSITIVE
                mixed ^= mixed >> 29
                at += 8
            number[row] = mixed


@compiled
def recipients(
    begin: Array,
    end: Array,
    octets: Array,
    of: Array,
    first: Array,
    numbers: Array,
    salt: int,
    count: Array,
    plain: Array,
    salted: Array,
) -> None:
    """Of cells that list addresses: how many, and the sums of their weights (``core.fingerprint.weight``).

    A row with number ``of`` names its recipients' numbers from ``first`` of that on; without any they are 1,
    2, and so on. -1 addresses: these are not as many as the numbers; -2: a member may be in single quotes.
    """
    low, high = salt & _LANE, salt >> 31
    for row in range(len(begin)):
        at, to = begin[row], end[row]
        place, last = first[of[row]], first[of[row] + 1]
        named, members, unsalted, with_salt, one, other = last > place, 0, 0, 0, _ONE, _OTHER
        quoted, empty = False, at == to
        while at <= to and not empty:
            if at < to and octets[at] != _ENTRY:
                octet = octets[at]
                quoted = quoted or octet == _APOSTROPHE
                one = ((one ^ octet) * _BY_ONE) & _LANE
                other = ((other ^ octet) * _BY_OTHER) & _LANE
                one ^= one >> 15
                other ^= other >> 13
            else:
                members += 1
                number = members
                if named:
                    number = numbers[place] if place < last else 0
                    place += 1
                for step in range(2):
                    word = number & _LANE if step == 0 else number >> 31
                    one = ((one ^ word) * _BY_ONE) & _LANE
                    other = ((other ^ word) * _BY_OTHER) & _LANE
                    one ^= one >> 15
                    other ^= other >> 13
                salted_one, salted_other = one, other
                for step in range(3):
                    word = low if step == 0 else high if step == 1 else 0
                    one = (one * _BY_ONE) & _LANE
                    other = (other * _BY_OTHER) & _LANE
                    one ^= one >> 15
                    other ^= other >> 13
                    salted_one = ((salted_one ^ word) * _BY_ONE) & _LANE
                    salted_other = ((salted_other ^ word) * _BY_OTHER) & _LANE
                    salted_one ^= salted_one >> 15
                    salted_other ^= salted_other >> 13
                unsalted += (one << 9) ^ other
                with_salt += (salted_one << 9) ^ salted_other
                one, other = _ONE, _OTHER
            at += 1
        count[row] = -2 if quoted else members if not named or place == last else -1
        plain[row], salted[row] = unsalted, with_salt


@compiled
def hashed(begin: Array, end: Array, words: Array, keep: Array, number: Array) -> None:
    """A number for each cell: the same for the same ones."""
    for row in range(len(begin)):
        at, to = begin[row], end[row]
        mixed = to - at
        while at < to:
            mixed = ((mixed ^ (words[at] & keep[min(to - at, 8)])) * _MIXING) & _POSITIVE
            mixed ^= mixed >> 29
            at += 8
        number[row] = mixed


@compiled
def whole(begin: Array, end: Array, octets: Array, found: Array) -> None:
    """The whole number that a cell writes in digits; -1 for any other text."""
    for row in range(len(begin)):
        at, to, value = begin[row], end[row], 0
        good = at < to and to - at <= _DIGITS
        while good and at < to:
            good = octets[at] >= 48 and octets[at] <= 57
            value = value * 10 + (octets[at] - 48)
            at += 1
        found[row] = value if good else -1


@compiled
def moments(begin: Array, end: Array, words: Array, found: Array) -> None:
    """Milliseconds since 1970 of times as our logs have them (2026-11-18T16:07:42.220Z); NONE of others."""
    for row in range(len(begin)):
        at = begin[row]
        found[row] = NONE
        if end[row] - at != 24:
            continue
        # Octet by octet: digits become what they are, and what stands between them becomes 0.
        one, two, three = words[at] ^ _DATE, words[at + 8] ^ _HOUR, words[at + 16] ^ _SECOND
        more = (one + _OVER_9) | (two + _OVER_9) | (three + _OVER_9)
        if (one | two | three | more) & _HIGH or one & _BESIDE_1 or two & _BESIDE_2 or three & _BESIDE_3:
            continue
        year = (one & 15) * 1000 + (one >> 8 & 15) * 100 + (one >> 16 & 15) * 10 + (one >> 24 & 15)
        month = (one >> 40 & 15) * 10 + (one >> 48 & 15)
        day = (two & 15) * 10 + (two >> 8 & 15)
        hour = (two >> 24 & 15) * 10 + (two >> 32 & 15)
        minute = (two >> 48 & 15) * 10 + (two >> 56 & 15)
        second = (three >> 8 & 15) * 10 + (three >> 16 & 15)
        fraction = (three >> 32 & 15) * 100 + (three >> 40 & 15) * 10 + (three >> 48 & 15)
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        last = 30 + (month + month // 8) % 2 if month != 2 else 29 if leap else 28
        good = hour < 24 and minute < 60 and second < 60 and month > 0 and month < 13
        if not good or day < 1 or day > last:
            continue
        # Days of a year that begins in March; an era has 400 years, and as many days as any other.
        year -= month < 3
        days = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
        of_era = year % 400
        days += of_era * 365 + of_era // 4 - of_era // 100 + year // 400 * 146_097 - 719_468
        found[row] = ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + fraction


@compiled
def uuids(begin: Array, end: Array, octets: Array, digits: Array, halves: Array, good: Array) -> None:
    """Ids written as UUIDs are, as four words of 32 bits. ``digits``: of each octet, or -1."""
    for row in range(len(begin)):
        at = begin[row]
        good[row] = False
        if end[row] - at != 36:
            continue
        same = octets[at + 8] == octets[at + 13] == octets[at + 18] == octets[at + 23] == _DASH
        whole = 0
        for half in range(4):
            value = 0
            for place in range(8):
                digit = digits[octets[at]]
                whole |= digit
                value = value * 16 + digit
                at += 1
                if (place == 3 and half > 0 and half < 3) or (place == 7 and half < 2):
                    at += 1
            halves[row, half] = value
        good[row] = same and whole >= 0


@compiled
def gathered(begin: Array, end: Array, octets: Array, into: Array) -> None:
    """The octets of cells, one behind the other."""
    at = 0
    for row in range(len(begin)):
        for place in range(begin[row], end[row]):
            into[at] = octets[place]
            at += 1
