"""What a fuzz target is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Check = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Target:
    """``check`` raises when the invariant, the first sentence of its docstring, does not hold for an
    input.
    """

    name: str
    check: Check
    seeds: Callable[[], Iterable[bytes]]

    @property
    def invariant(self) -> str:
        return " ".join((inspect.getdoc(self.check) or "").split())


class Broken(AssertionError):
    """An invariant does not hold."""


def must(holds: object, what: str) -> None:
    """Raise Broken unless it holds; unlike ``assert`` also under ``python -O``."""
    if not holds:
        raise Broken(what)


def text_of(data: bytes) -> str:
    """The input as the text that a session would hand to a parser: what is not UTF-8 is replaced."""
    return data.decode("utf-8", "replace")


def cut(data: bytes) -> tuple[list[int], bytes]:
    """Take the first octets as sizes in which the rest is to be fed; the last size is used on."""
    count = data[0] % 8 if data else 0
    sizes = [1 + octet % 97 for octet in data[1 : 1 + count]] or [1]
    return sizes, data[1 + count :]


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """The octets in pieces of these sizes, the last size again and again."""
    found, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[min(turn, len(sizes) - 1)]
        found.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return found
