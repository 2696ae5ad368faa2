"""What a process can do without, to start sooner."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _Missing(MetaPathFinder):
    """As if pandas were not installed."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def without_pandas() -> None:
    """Arrow looks for pandas at its first array, to ask of all that it is given whether it is a data frame.

    To load it takes 0.4 s, and nobody here has one. Whoever imports pandas afterwards gets it.
    """
    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(missing)
