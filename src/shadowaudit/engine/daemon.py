"""The process that Spark's Python workers on this machine are forked from: it has what they need loaded.

Runs in place of ``pyspark.daemon``. Spark puts its own copy of PySpark first on the path, as an archive of
sources, which each process would compile again.
"""

from __future__ import annotations

import gc
import sys

from shadowaudit.engine.lean import without_pandas

if __name__ == "__main__":
    sys.path.sort(key=lambda place: place.endswith((".zip", ".jar")))
    from pyspark import daemon, worker  # noqa: F401

    without_pandas()
    import numba  # noqa: F401

    from shadowaudit.engine import ahead, merge  # noqa: F401

    gc.freeze()  # workers look for cycles after each task
    daemon.manager()
