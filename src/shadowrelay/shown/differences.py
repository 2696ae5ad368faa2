"""In what nodes differ that should be alike: their version, and settings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from shadowrelay.core.workers import label
from shadowrelay.shown.fold import Fields
from shadowrelay.shown.reading import is_told


def differences(nodes: Iterable[Fields], name: Callable[[str], str] = label) -> list[str]:
    """Sentences without a full stop. ``nodes``: an entry for each. What one does not tell, is none."""
    answering = [one for one in nodes if one["answers"]]
    return [*_versions(answering, name), *_settings(answering, name)]


def _versions(answering: Sequence[Fields], name: Callable[[str], str]) -> Iterator[str]:
    found = _alike({name(one["node"]): one["status"].get("version", "") for one in answering})
    if len(found) > 1:
        told = "; ".join(f"{_listed(who)} {_runs(who)} {version}" for version, who in found.items())
        yield f"members have different versions of shadowrelay: {told}"


def _settings(answering: Sequence[Fields], name: Callable[[str], str]) -> Iterator[str]:
    sites: dict[str, dict[str, Fields]] = {}
    for one in answering:
        told = one["status"].get("settings")
        if told and is_told(told):
            sites.setdefault(str(one["status"]["site"]), {})[name(one["node"])] = told
    for members in sites.values():
        for section in sorted({section for one in members.values() for section in one}):
            found = _alike({who: one.get(section, "") for who, one in members.items()})
            if len(found) > 1:
                most, *others = map(_listed, found.values())
                yield (
                    f"the settings of {section} at {', '.join(others)} differ from those of {most}: compare "
                    "shadowrelay config show there"
                )


def _alike(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Who has each value that is told; the value that most have is first."""
    found: dict[str, list[str]] = {}
    for who, value in values.items():
        if is_told(value):
            found.setdefault(value, []).append(who)
    return dict(sorted(found.items(), key=lambda one: -len(one[1])))


def _runs(who: Sequence[str]) -> str:
    return "runs" if len(who) == 1 else "run"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
