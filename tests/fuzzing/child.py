"""One target under libFuzzer, in a process of its own: the fuzzer ends it by leaving the process.

``python -m tests.fuzzing.child TARGET [option of libFuzzer or folder of the corpus]...``
"""

from __future__ import annotations

import sys

import atheris
import structlog


def main() -> None:
    name, *options = sys.argv[1:]
    # Sessions log what strangers do, which is the whole input here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with atheris.instrument_imports(include=["shadowrelay"]):
        from .targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[name].check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
