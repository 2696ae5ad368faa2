"""The file of patterns: replies by which servers ask for less, and how long nothing is sent then."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from shadowrelay.core.delivery.shaping import Pattern
from shadowrelay.core.spelling import without_case
from shadowrelay.settings.description import SchemaNode
from shadowrelay.settings.section import Section
from shadowrelay.settings.values import DomainPattern, Duration, Format, Integer, TableName
from shadowrelay.settings.wrong_values import error_of

_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_ENHANCED = re.compile(r"4\.\d{1,3}\.\d{1,3}", re.ASCII)


def parse_enhanced(value: object) -> str:
    """``4.7.28``."""
    if not isinstance(value, str) or not _ENHANCED.fullmatch(value):
        raise ValueError("not an enhanced status code")
    return value


def parse_phrase(value: object) -> str:
    """``exceeded *rate``: plain text, but for `*`; case does not matter."""
    if not isinstance(value, str):
        raise ValueError("not text")
    if not value.strip("* "):
        raise ValueError("is found in every reply: say what a reply has to contain")
    if any(sign in value for sign in ("|", ".*", "\\")):
        raise ValueError("is no regular expression: `*` alone is anything, and several phrases are a list")
    return without_case(value)


Phrase = Annotated[str, BeforeValidator(parse_phrase), Format("text such as `exceeded *rate`")]


class PatternSettings(Section):
    """Replies that ask for less."""

    match: list[DomainPattern] = Field(["*"], min_length=1)
    code: Integer = Field(ge=400, le=499)
    enhanced: Annotated[str, BeforeValidator(parse_enhanced), Format("a code such as 4.7.28")] | None = None
    text: list[Phrase] | None = Field(None, min_length=1)
    pause: Duration = Field(ge=_SECOND, le=_DAY)

    @model_validator(mode="after")
    def _more_than_a_code(self) -> PatternSettings:
        if self.enhanced is None and self.text is None:
            raise ValueError("names every reply with that code: give enhanced, text, or both")
        return self


class PatternsFile(Section):
    page: ClassVar[str] = "docs/how-to/shaping.md"

    patterns: dict[TableName, PatternSettings]


class PatternsInvalid(ValueError):
    """The file of patterns is invalid. The text says where, and what is allowed."""


def patterns(path: Path | None) -> tuple[Pattern, ...]:
    """What a file of patterns holds; None: the one that comes with the package. Raises PatternsInvalid,
    OSError.
    """
    file = path or files("shadowrelay.settings") / "shaping_patterns.toml"
    try:
        tree: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
        found = PatternsFile(**tree)
    except ValidationError as error:
        raise PatternsInvalid(_wrong(error, tree)) from None
    except UnicodeDecodeError:
        raise PatternsInvalid("is not UTF-8: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise PatternsInvalid(f"is not TOML: {error}") from None
    return tuple(
        Pattern(
            name=name,
            match=tuple(one.match),
            code=one.code,
            enhanced=one.enhanced or "",
            text=tuple(one.text or ()),
            pause=one.pause,
        )
        for name, one in found.patterns.items()
    )


def _wrong(error: ValidationError, tree: dict[str, Any]) -> str:
    details = error.errors(include_url=False)
    return "; ".join(str(error_of(one, tree, {}, SchemaNode(PatternsFile))) for one in details)
