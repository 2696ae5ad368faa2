"""SMTP as we speak it: Receive connectors, sessions with next hops, and sessions between members."""
