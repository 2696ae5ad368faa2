"""``python -m tests.simulation``: see docs/simulation.md."""

from .cli import main

raise SystemExit(main())
