"""Makes the helper modules of this directory, and those for SMTP, importable from every test."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("smtp", "wire"):
    sys.path.append(str(Path(__file__).parent / folder))
