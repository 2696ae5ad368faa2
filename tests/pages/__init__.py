"""Commands taken from the documentation, so that what a page tells its reader to type is what a test runs.

``commands`` reads a page, ``shell`` runs what it says in one shell, ``agreement`` compares what was printed
with what the page shows. ``python -m tests.pages`` counts what is run, and what is not and why.
"""
