"""The other members of the boundary: sessions with them, answers to them, a link to each. What they say is
concluded here (promotion, delivery after a question), and copies that are missing or damaged are replaced.

What this process remembers of the members, and forgets when it ends, is here too.
"""
