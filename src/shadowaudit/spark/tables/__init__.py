"""The tables that ``shadowaudit ingest --tables`` keeps: events, messages, and sums of them, as Parquet.

    store: which files are current, published whole ─▶ writer: rows of tasks ─▶ silver, gold: SQL ─▶ ingest

``schemas`` and ``store`` know no Spark: whoever only reads the tables needs pyarrow alone.
"""
