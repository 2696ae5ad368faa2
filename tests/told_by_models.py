"""Whether an answer is as its model says, to the last field."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter


def exact(model: Any, text: str) -> None:
    """The model takes the answer, and has a field for all that is in it."""
    adapter = TypeAdapter(model)
    kept, told = adapter.dump_python(adapter.validate_json(text, strict=True)), json.loads(text)
    assert kept == told, f"{model}: {kept} is not {told}"
