"""The console: pages about a node and its members, made on the server (docs/how-to/console.md).

``pages`` and ``acting`` answer requests, ``asking`` asks the node, ``safety`` judges what it says, and
``picture`` and ``charts`` draw it. A page works without scripts; ``static/console.js`` makes it live.
"""
