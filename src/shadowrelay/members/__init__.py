"""The other members of the boundary: sessions with them, answers to them, and a link to each.

The stages here conclude what members were asked (promotion, delivery after a question), and replace missing
and damaged copies. What this process remembers about members until it ends is here too.
"""
