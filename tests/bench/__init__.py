"""How fast the relay is and what it costs, beside others: each bench is a command of ``scripts/bench``."""
