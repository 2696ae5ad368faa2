"""A fault: what is edited where, so that one rule is broken, and the test that has to notice.

An edit is anchored to the name of what it stands in: a function that moves, to another line or to another
module of its package, keeps its fault.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Edit(NamedTuple):
    """In a file below the root: text that is there exactly once, and what takes its place.

    ``within``: the qualified name of the function, class or constant that has it; if empty, the file has it.
    ``old``: a piece of a line, and the whole line if nothing else is there and nothing takes its place; or,
    if it ends with a line's end, whole lines, which may stand further in.
    """

    file: str
    old: str
    new: str
    within: str = ""

    def place(self, root: Path = ROOT) -> str:
        """The file that has what is named. It may have moved within its package. Raises LookupError."""
        path = root / self.file
        if path.is_file() and (not self.within or self.within in _definitions(path)):
            return self.file
        if not self.within:
            raise LookupError(f"there is no {self.file}")
        package = root.joinpath(*Path(self.file).parts[:2])
        last = re.compile(rf"\b{self.within.rpartition('.')[2]}\b")
        others = [one for one in sorted(package.rglob("*.py")) if last.search(one.read_text("utf-8"))]
        named = [one for one in others if self.within in _definitions(one)]
        match [str(one.relative_to(root)) for one in named if self._is_in(one.read_text("utf-8"))]:
            case [found]:
                return found
            case several:
                there = several or [str(one.relative_to(root)) for one in named]
                elsewhere = " and in ".join(there) or "no file"
                raise LookupError(f"{self.within} is not in {self.file}, but in {elsewhere}")

    def _is_in(self, source: str) -> bool:
        with suppress(LookupError):
            self.found(source)
            return True
        return False

    def found(self, source: str) -> tuple[int, int, str]:
        """From where to where it takes text away, and what it puts there. Raises LookupError."""
        spans = definitions(source).get(self.within, []) if self.within else [(0, len(source))]
        found = [match for span in spans for match in self._pattern.finditer(source, *span)]
        if len(found) != 1:
            where = f"{self.file} {self.within}".strip()
            raise LookupError(f"{where} has {self.old!r} {len(found)} times, and it has to be there once")
        begin, end = found[0].span()
        first, last = source.rfind("\n", 0, begin) + 1, source.find("\n", end) + 1
        nothing_else = not source[first:begin].strip() and source[end:last] == "\n"
        if nothing_else and not self.new and not self.old.endswith("\n"):
            return first, last, ""
        return begin, end, textwrap.indent(self.new, found[0]["indent"])

    @property
    def _pattern(self) -> re.Pattern[str]:
        if not self.old.endswith("\n"):
            return re.compile(f"(?P<indent>){re.escape(self.old)}")
        lines = [re.escape(line) for line in self.old.splitlines()]
        further = (f"(?P=indent){line}\n" if line else " *\n" for line in lines[1:])
        return re.compile(f"^(?P<indent> *){lines[0]}\n{''.join(further)}", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A step left out, or done in the wrong order. ``test``: as pytest names it, below ``tests``."""

    name: str
    rule: str
    test: str
    edits: tuple[Edit, ...]

    @property
    def where(self) -> str:
        """The files that it names, by the name of their package if that is not the relay's."""
        files = (edit.file.removeprefix("src/").removeprefix("shadowrelay/") for edit in self.edits)
        return "`, `".join(dict.fromkeys(files))

    @property
    def kind(self) -> str:
        if self.test.startswith("simulation/"):
            return "simulation"
        return "audit" if self.edits[0].file.startswith("src/shadowaudit/") else "source"

    def planted(self, root: Path = ROOT) -> dict[str, str]:
        """The files below the root with this fault in them. LookupError: it does not apply any more."""
        edits: dict[str, list[tuple[int, int, str]]] = {}
        sound: dict[str, str] = {}
        for edit in self.edits:
            place = edit.place(root)
            sound[place] = (root / place).read_text("utf-8")
            edits.setdefault(place, []).append(edit.found(sound[place]))
        return {place: _edited(text, edits[place]) for place, text in sound.items()}

    def moved(self, root: Path = ROOT) -> list[str]:
        """What stands in another file than the fault says."""
        places = [(edit, edit.place(root)) for edit in self.edits]
        return [
            f"{one.within} is in {place}, not in {one.file}" for one, place in places if place != one.file
        ]


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    rest = len(text)
    for begin, end, new in sorted(edits, reverse=True):
        if end > rest:
            raise LookupError(f"two edits take the same text away: {text[begin:end]!r}")
        text, rest = text[:begin] + new + text[end:], begin
    return text


@lru_cache(maxsize=64)
def definitions(source: str) -> dict[str, list[tuple[int, int]]]:
    """Where each function, class and constant of a module begins and ends, by its qualified name.

    There may be several of one name, such as what reads a property and what sets it. Local names are none.
    """
    ends = [0]
    for line in source.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    found: dict[str, list[tuple[int, int]]] = {}
    for name, first, last in _named(ast.parse(source), ""):
        found.setdefault(name, []).append((ends[first - 1], ends[last]))
    return found


def _definitions(path: Path) -> dict[str, list[tuple[int, int]]]:
    return definitions(path.read_text("utf-8")) if path.suffix == ".py" else {}


def _named(parent: ast.AST, prefix: str, *, local: bool = False) -> Iterator[tuple[str, int, int]]:
    """Names with the first and the last of their lines."""
    for node in ast.iter_child_nodes(parent):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield f"{prefix}{node.name}", first, node.end_lineno or first
                yield from _named(node, f"{prefix}{node.name}.", local=not isinstance(node, ast.ClassDef))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
                not local
            ):
                yield f"{prefix}{name}", node.lineno, node.end_lineno or node.lineno
            case ast.stmt() | ast.excepthandler() | ast.match_case():
                yield from _named(node, prefix, local=local)
            case _:
                pass
