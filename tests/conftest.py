"""Makes the helper modules of this directory, and those for SMTP, importable from every test."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "smtp"))
