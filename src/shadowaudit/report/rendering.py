"""What all pages have in common: templates that escape, one style, no script."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import jinja2

SHARED = "shadowaudit.report"


def rendered(name: str, package: str = SHARED, **values: Any) -> str:
    """The template of that package with these values. It may use ``parts.html`` and ``frame.html``."""

    def source(wanted: str) -> str:
        return files(package if wanted == name else SHARED).joinpath(wanted).read_text("utf-8")

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["number"] = lambda value: f"{value:,}"
    made.globals["style"] = files(SHARED).joinpath("page.css").read_text("utf-8")
    return made.get_template(name).render(**values)
