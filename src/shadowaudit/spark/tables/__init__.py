"""The tables that ``shadowaudit ingest --tables`` keeps: events, messages, and sums of them, as Delta tables.

    data: files of rows ─▶ publishing: one state of all tables ─▶ tasks: Spark ─▶ silver, gold: SQL ─▶ ingest

``schemas``, ``store``, ``data`` and ``publishing`` know no Spark: who only reads needs deltalake and pyarrow.
"""
