"""The verdict of the last audit, if the setting admin.audit_verdict names its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """``good``: the audit found nothing lost."""

    sentence: str
    good: bool
    at: datetime


def verdict_in(path: Path | None) -> AuditVerdict | None:
    """What ``shadowaudit verify`` wrote into that ``verdict.json``; None if there is none. Never raises."""
    if path is None:
        return None
    try:
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST))
        return _read(found, at) or AuditVerdict("the file is no verdict", False, at)
    except OSError:
        return None
    except ValueError:
        return AuditVerdict("the file is no verdict", False, at)


def _read(found: Any, at: datetime) -> AuditVerdict | None:
    if not isinstance(found, Mapping) or not isinstance(found.get("verdict"), str):
        return None
    sentence = found.get("sentence")
    told = sentence if isinstance(sentence, str) else found["verdict"]
    return AuditVerdict(told, found["verdict"] == "proven", at)
