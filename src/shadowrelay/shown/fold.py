"""Makes one answer of several: of the workers of a node, or of several nodes. Pure.

Every field of a model says its rule: ``Annotated[int, SUM]``. A field that is a model itself needs none: its
own fields have theirs. What no answer has stays away, and what the model does not know of a node is kept as
the first worker has it: nodes of other versions answer too. A sum of which one part is not told (``reading``)
is not told either; the greatest of several is that of those that tell.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.shown.reading import is_told

Fields = Mapping[str, Any]
_Model = TypeVar("_Model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """What a rule may know. ``answers``: those that have the field; the one that speaks first is first.
    ``node``: whose answer it becomes; empty for several nodes. ``silent``: how many do not answer. ``model``:
    that of the field, if it has one.
    """

    answers: Sequence[Fields]
    node: str
    silent: int
    model: type | None

    def of(self, answers: Sequence[Fields]) -> Any:
        """Several values of this field as one, by the rules of its model."""
        assert self.model is not None
        return fold(self.model, answers, self.node, silent=self.silent)


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of the values of a field. ``rank``: of its value and its answer. The answer with the least
    rank speaks first. One field of a model has a rank, at most. ``alone``: what one answer alone says may
    change too, because the rule names the node, or hears of who is silent. ``lacking``: whether values that
    are told say too little, if others are not told.
    """

    of: Callable[[Sequence[Any], Folding], Any]
    rank: Callable[[Any, Fields], Any] | None = None
    alone: bool = False
    lacking: Callable[[Sequence[Any]], bool] = lambda told: not told

    def over(self, values: Sequence[Any]) -> Any:
        """Values that stand in no model."""
        return self.of(values, Folding(answers=(), node="", silent=0, model=None))


def fold(model: type[_Model], answers: Sequence[Any], node: str = "", *, silent: int = 0) -> _Model:
    """One answer of that model; empty without any. ``node``: whose workers answer; empty for several nodes.
    ``silent``: how many others were asked and do not answer.
    """
    fields = _fields(cast(Hashable, model))
    ordered = list(answers)
    for name, (rule, _) in fields.items() if len(answers) > 1 else ():
        if (rank := rule.rank) is not None:
            ordered.sort(key=lambda one, name=name, rank=rank: rank(one.get(name), one))  # type: ignore[misc]
    folded: dict[str, Any] = dict(ordered[0]) if node and ordered else {}
    if len(answers) == 1:  # thousands of queues of one worker come through here
        folded = folded or {name: ordered[0][name] for name in fields if name in ordered[0]}
        fields = _fields_alone(cast(Hashable, model))
    for name, (rule, inner) in fields.items():
        saying = [one for one in ordered if name in one]
        if saying:
            folded[name] = _ruled(rule, name, saying, node, silent, inner)
    return cast(_Model, folded)


def _ruled(
    rule: Rule, name: str, saying: Sequence[Fields], node: str, silent: int, inner: type | None
) -> Any:
    telling = [one for one in saying if is_told(one[name])]
    values = [one[name] for one in telling]
    if len(telling) < len(saying) and rule.lacking(values):
        return next(one[name] for one in saying if not is_told(one[name]))
    return rule.of(values, Folding(answers=telling, node=node, silent=silent, model=inner))


@cache
def _fields(model: Hashable) -> dict[str, tuple[Rule, type | None]]:
    return {name: _field(hint) for name, hint in get_type_hints(model, include_extras=True).items()}


@cache
def _fields_alone(model: Hashable) -> dict[str, tuple[Rule, type | None]]:
    return {
        name: (rule, inner)
        for name, (rule, inner) in _fields(model).items()
        if rule.alone or (inner is not None and _fields_alone(inner))
    }


def _field(hint: Any) -> tuple[Rule, type | None]:
    """The rule of a field, and the model that is in it."""
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    rules = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Rule)]
    model = _model(hint)
    return (rules[0] if rules else MODEL if model else FIRST), model


def _model(hint: Any) -> type | None:
    if is_typeddict(hint):
        found: type = hint
        return found
    args = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return next(filter(None, map(_model, args)), None)


def _known(values: Iterable[Any]) -> list[Any]:
    return [one for one in values if one is not None]


def _each_once(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for one in values:
        found += [] if one in found else [one]
    return found


_ALWAYS: Callable[[Sequence[Any]], bool] = lambda _: True  # noqa: E731

FIRST = Rule(lambda values, _: values[0])
"""As the answer says that speaks first: the worst, if a field of the model is ``worst``."""

SAID = Rule(lambda values, _: next(filter(None, values), values[0]))
"""Of the first that says something."""

SUM = Rule(lambda values, _: sum(known) if (known := _known(values)) else None, lacking=_ALWAYS)
SUM_BY_NAME = Rule(
    lambda values, _: {
        name: sum(one.get(name, 0) for one in values) for name in _each_once(n for one in values for n in one)
    },
    lacking=_ALWAYS,
)
LEAST = Rule(lambda values, _: min(_known(values), default=None))
MOST = Rule(lambda values, _: max(_known(values), default=None))
OLDEST, NEWEST = LEAST, MOST
"""Times are text that sorts. One that is not known does not count."""

LAST_OF_ALL = Rule(lambda values, _: max(values) if all(values) else None, lacking=all)
"""When the last of all did it; None while one has not."""

ANY = Rule(lambda values, _: any(values), lacking=lambda told: not any(told))
ALL = Rule(lambda values, _: all(values), lacking=all)
ALL_ASKED = Rule(lambda values, at: all(values) and not at.silent, alone=True, lacking=all)
"""All, and who does not answer does not."""

UNION = Rule(lambda values, _: _each_once(item for one in values for item in one))
SORTED_UNION = Rule(lambda values, _: sorted({item for one in values for item in one}))
EACH_ONCE = Rule(lambda values, _: ", ".join(_each_once(values)))
ALONE = Rule(lambda values, at: values[0] if len(values) + at.silent == 1 else None, alone=True)
"""Of one process: a node of several has none."""

NODE = Rule(lambda values, at: at.node or values[0], alone=True)
"""The name of the node."""

MODEL = Rule(lambda values, at: at.of(_known(values)) if _known(values) else None)
MODEL_OF_ALL = Rule(
    lambda values, at: at.of(values) if all(values) and not at.silent else None, alone=True, lacking=all
)
"""None while one has none."""


class _AtLeastZero:
    """Of a count: says so in its schema."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(schema), "minimum": 0}


def worst(*states: str) -> Rule:
    """The state that comes first in ``states``; one that is not there is worse than all. It speaks first."""
    return Rule(FIRST.of, lambda value, _: states.index(value) if value in states else -1)


def highest() -> Rule:
    """The highest number; its answer speaks first."""
    return Rule(FIRST.of, lambda value, _: -value)


def queue_of(name: str, kind: str = "") -> Rule:
    """The identity of a queue: its node, and the field ``name``."""
    return Rule(
        lambda values, at: f"{at.node}\\{kind}{at.answers[0][name]}" if at.node else values[0], alone=True
    )


def by(*keys: str, nodes: bool = False) -> Rule:
    """A list of models: those alike in ``keys`` are one. ``nodes``: workers are alike if their node is."""

    def listed(values: Sequence[Sequence[Fields]], at: Folding) -> list[dict[str, Any]]:
        alike: dict[tuple[Any, ...], list[Fields]] = {}
        for item in (item for one in values for item in one):
            found = {**item, keys[0]: node_of(ServerName(item[keys[0]]))} if nodes else item
            alike.setdefault(tuple(found[key] for key in keys), []).append(found)
        return [at.of(some) for some in alike.values()]

    return Rule(listed)


Natural = Annotated[int, _AtLeastZero()]
Sum = Annotated[Natural, SUM]
SumByName = Annotated[dict[str, Natural], SUM_BY_NAME]
Oldest = Annotated[str | None, OLDEST]
Newest = Annotated[str | None, NEWEST]
Anywhere = Annotated[bool, ANY]
Everywhere = Annotated[bool, ALL]
