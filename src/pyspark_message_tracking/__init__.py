"""The logs as a format of every session of Spark: it takes ``DefaultSource`` from each package ``pyspark_…``.

Where what the format needs is not installed, there is none: an error here would keep Spark from others'.
"""

from contextlib import suppress

with suppress(ImportError):
    from shadowaudit.spark.source import MessageTracking as DefaultSource

__all__ = ["DefaultSource"]
