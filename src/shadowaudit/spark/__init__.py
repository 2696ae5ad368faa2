"""The logs as a data source of Spark: ``spark.read.format("message_tracking")``.

    places: URIs ─▶ planning: which files, in which tasks ─▶ events: rows as Arrow batches ─▶ source: Spark

Only ``source`` and ``session`` know Spark. Rows are read by ``logs``, as the audit reads them.
"""
