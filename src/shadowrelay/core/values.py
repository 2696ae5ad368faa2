"""Fast dataclasses, frozen only for the type checker, and a fast ``replace``.

The standard library's frozen classes assign each field through a function, and its ``replace`` looks at each
field's description: that took a twentieth of a message's processor time (docs/decisions/0012-hot-path.md). So
mypy enforces ``frozen=True`` in all our code; at run time the class is a plain one with a hash. Values that
are made rarely, such as settings, do not need this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    import dataclasses

    def dataclass(**options):
        """``dataclasses.dataclass``, but ``frozen=True`` makes the class hashable, not frozen."""
        if options.pop("frozen", False):
            options["unsafe_hash"] = options.get("eq", True)
        return dataclasses.dataclass(**options)

    def replace(value, /, **changes):
        """As ``dataclasses.replace``. Raises AttributeError for a name that is no field."""
        kind = type(value)
        copied = (_COPIERS.get(kind) or _copier(kind))(value)
        for name, changed in changes.items():
            setattr(copied, name, changed)
        if hasattr(kind, "__post_init__"):
            copied.__post_init__()
        return copied

    _COPIERS = {}

    def _copier(kind):
        """A function that copies field by field; its code is generated, like the library's ``__init__``."""
        assignments = "".join(f" new.{field.name} = old.{field.name}\n" for field in dataclasses.fields(kind))
        names = {"make": object.__new__, "kind": kind}
        exec(f"def copy(old):\n new = make(kind)\n{assignments} return new", names)  # noqa: S102 - of names of fields
        return _COPIERS.setdefault(kind, names["copy"])


__all__ = ["dataclass", "replace"]
