"""The audit: by the tracking logs of all nodes, was an acknowledged message lost, doubled, or held once only?

It shares nothing with the relay but the log's format (docs/reference/tracking-log.md), and reads Exchange's
own logs too. Data flows one way:

    files ─▶ logs: facts of each file, partial states ─▶ engine: merge, suspects ─▶ core: verdict ─▶ report

``core`` decides, ``logs`` reads, ``engine`` spreads the work (Spark or Sail), ``report`` shows.
"""
