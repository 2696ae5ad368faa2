"""docs/dependencies.md says of each callable of a library whether it runs: the page, and what did run."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "dependencies.md"


def said(library: str) -> dict[str, str]:
    """Each callable of that section of the page, and what is said of it."""
    section = PAGE.read_text().partition(f"\n## {library} ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \| (runs|extended|replaced|never) \|", section, re.MULTILINE)
    names = [(name, mark) for cell, mark in rows for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) == len(dict(names)), "a callable has two rows"
    return dict(names)


def defined(*modules: ModuleType) -> set[str]:
    """The callables of these modules, but for what the garbage collector calls."""
    found = {name for module in modules for name in _defined_in(module)}
    return {name for name in found if not name.endswith(".__del__")}


def _defined_in(module: ModuleType) -> Iterator[str]:
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", "") == module.__name__:
            if inspect.isclass(thing):
                yield from (f"{name}.{key}" for key, one in vars(thing).items() if _is_callable(one))
            elif inspect.isfunction(thing):
                yield name


def _is_callable(thing: object) -> bool:
    return inspect.isroutine(thing) or isinstance(thing, property)


@contextmanager
def watched(*modules: ModuleType) -> Iterator[set[str]]:
    """Their functions that are entered meanwhile, in this thread and in those that it starts."""
    entered: set[str] = set()
    files = {module.__file__ for module in modules}

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in files:
            entered.add(frame.f_code.co_qualname)

    before = sys.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield entered
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def agree(library: str, entered: set[str], *modules: ModuleType) -> None:
    """The page names every callable, and says rightly which run."""
    page = said(library)
    assert set(page) == defined(*modules)
    assert {name for name, mark in page.items() if mark in {"runs", "extended"}} == entered & set(page)
