"""Dataclasses that are frozen for the type checker alone, and a ``replace`` that copies at once.

The standard library's frozen classes assign each field through a function, and its ``replace`` looks at each
field's description: of a message's processor time that was a twentieth (docs/decisions/0012-hot-path.md). So
``frozen=True`` is what mypy proves of all our code; at run time the class is a plain one with a hash. Values
that are made now and then, as settings are, have no need of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    import dataclasses

    def dataclass(**options):
        """``dataclasses.dataclass``; what was to be frozen is hashable instead."""
        if options.pop("frozen", False):
            options["unsafe_hash"] = options.get("eq", True)
        return dataclasses.dataclass(**options)

    def replace(value, /, **changes):
        """``dataclasses.replace``. AttributeError for a name that is no field."""
        kind = type(value)
        copied = (_COPIERS.get(kind) or _copier(kind))(value)
        for name, changed in changes.items():
            setattr(copied, name, changed)
        if hasattr(kind, "__post_init__"):
            copied.__post_init__()
        return copied

    _COPIERS = {}

    def _copier(kind):
        """A function that copies field by field, written as the library writes ``__init__``."""
        assignments = "".join(f" new.{field.name} = old.{field.name}\n" for field in dataclasses.fields(kind))
        names = {"make": object.__new__, "kind": kind}
        exec(f"def copy(old):\n new = make(kind)\n{assignments} return new", names)  # noqa: S102 - of names of fields
        return _COPIERS.setdefault(kind, names["copy"])


__all__ = ["dataclass", "replace"]
