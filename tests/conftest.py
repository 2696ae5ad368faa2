"""Makes the helper modules of this directory, and those for SMTP, importable from every test.

Whoever starts the tests in the background may have told them to ignore SIGINT; tests about Ctrl-C, and the
processes that they start, are to have it as on a terminal.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

# The last one is for the package tests.neighbours.
for folder in ("core", "smtp", "wire", "admin", "corpus", "e2e", ".."):
    sys.path.append(str(Path(__file__).parent / folder))

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
