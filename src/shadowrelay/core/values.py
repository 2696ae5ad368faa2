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
        return _COPIERS[type(value), *changes](value, **changes)

    class _Copiers(dict):
        """For a class and the fields that change: a function that copies field by field. Its code is
        generated, like the library's ``__init__``.
        """

        def __missing__(self, key):
            kind, *changes = key
            # What a class computes of its fields, it computes again.
            fields = [field.name for field in dataclasses.fields(kind) if field.init]
            if unknown := set(changes).difference(fields):
                raise AttributeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
            lines = [f"_new.{name} = {name if name in changes else f'_old.{name}'}" for name in fields]
            lines += ["_new.__post_init__()"] * hasattr(kind, "__post_init__")
            names = {"_make": object.__new__, "_kind": kind}
            source = "\n ".join(
                [f"def copy({', '.join(['_old', *changes])}):", "_new = _make(_kind)", *lines]
            )
            exec(f"{source}\n return _new", names)  # noqa: S102 - of names of fields
            return self.setdefault(key, names["copy"])

    _COPIERS = _Copiers()


__all__ = ["dataclass", "replace"]
