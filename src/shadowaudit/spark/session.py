"""A session of Spark on this machine, for whoever has none."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from shadowaudit.spark.java import find_java, shim

_LOCAL = {
    "spark.driver.host": "127.0.0.1",  # a host name may lead to an address that nothing listens at
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",  # as the logs
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),  # 200 unless told: those are for clusters
}


def open_session(conf: Mapping[str, str]) -> SparkSession:
    """The session that there is, or a new one. Raises NoJavaError.

    Under ``spark-submit`` it is the one of that command. Spark's tasks have this Python and its packages.
    """
    builder = SparkSession.builder.appName("shadowaudit")
    settings = dict(conf)
    if not submitted() and SparkSession.getActiveSession() is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = str(shim(find_java().home))
        settings = {"spark.master": "local[*]"} | _LOCAL | settings
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def submitted() -> bool:
    """Does ``spark-submit`` run this?"""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_ENV_LOADED" in os.environ
