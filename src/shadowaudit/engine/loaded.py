"""What each process of the pool needs: loaded once, in the process that they are forked from."""

from __future__ import annotations

import gc

import numba  # noqa: F401

from shadowaudit.engine import here  # noqa: F401
from shadowaudit.engine.pool import without_pandas

without_pandas()
gc.freeze()
