"""What people ask of events, as views of Spark SQL over them. docs/how-to/spark.md tells of each."""

from __future__ import annotations

from typing import Any

EVENTS = "events"

RESUBMITTED = "(event_id = 'RESUBMIT' AND source <=> 'SAFETYNET' AND software = 'shadowrelay')"
"""A message of our own begins, which gives another one back."""

RECEIVED = """(
    event_id = 'RECEIVE'
    AND NOT (
        coalesce(source, '') IN ('AGENT', 'ROUTING') AND reference IS NOT NULL AND software = 'shadowrelay'
    )
)"""
"""Accepted from a sender, and neither a journal copy of our own nor a message to the members of a list."""

SENT_AGAIN = "(event_id = 'RESUBMIT' AND custom_data['HopDb'] IS NOT NULL)"
"""A message of our own begins, in place of one that a hop failed to deliver."""

BEGINS = f"(event_id IN ('RECEIVE', 'DSN') OR {RESUBMITTED} OR {SENT_AGAIN})"
"""A message begins."""


def worded(query: str) -> str:
    """With these conditions in the places of ``{begins}``, ``{received}`` and ``{resubmitted}``."""
    conditions = {"{begins}": BEGINS, "{received}": RECEIVED, "{resubmitted}": RESUBMITTED}
    for place, condition in conditions.items():
        query = query.replace(place, condition)
    return query


SUMS = {
    "reasons": """
        WITH told AS (
            SELECT
                to_date(date_time) AS day,
                node,
                event_id,
                server_hostname AS next_hop,
                coalesce(
                    nullif(regexp_extract(get(recipient_status, 0), 'LED=([^}]*)', 1), ''),
                    source_context
                ) AS reply,
                coalesce(size(recipient_address), 0) AS recipients,
                network_message_id,
                date_time
            FROM events
            WHERE event_id IN ('DEFER', 'FAIL')
        )
        SELECT
            {by}
            event_id,
            next_hop,
            nullif(regexp_extract(reply, '^([245][0-9][0-9])', 1), '') AS code,
            nullif(regexp_extract(reply, '^[245][0-9][0-9][ -]([245][.][0-9]+[.][0-9]+)', 1), '') AS status,
            reply,
            count(*) AS times,
            sum(recipients) AS recipients,
            min(date_time) AS first_at,
            max(date_time) AS last_at,
            min(network_message_id) AS example
        FROM told
        GROUP BY {by} event_id, next_hop, reply
    """,
    "promotions": """
        WITH taken AS (
            SELECT
                to_date(date_time) AS day,
                node,
                custom_data['Owner'] AS owner,
                custom_data['Reason'] AS reason,
                date_time
            FROM events
            WHERE event_id = 'RESUBMIT' AND source = 'REDUNDANCY' AND custom_data['HopDb'] IS NULL
        )
        SELECT
            {by}
            node,
            owner,
            reason,
            count(*) AS messages,
            min(date_time) AS first_at,
            max(date_time) AS last_at
        FROM taken
        GROUP BY {by} node, owner, reason
    """,
    "domains": """
        WITH received AS (
            SELECT
                to_date(date_time) AS day,
                node,
                coalesce(network_message_id, message_id) AS id,
                total_bytes,
                sender_address,
                recipient_address
            FROM events
            WHERE {received}
        ),
        named AS (
            SELECT day, node, 'sender' AS side, id, total_bytes, sender_address AS address FROM received
            UNION ALL
            SELECT day, node, 'recipient', id, total_bytes, explode(recipient_address) FROM received
        ),
        once AS (
            SELECT
                {by}
                side,
                lower(substring_index(address, '@', -1)) AS domain,
                id,
                max(total_bytes) AS octets,
                count(*) AS addresses
            FROM named
            WHERE address LIKE '%@%'
            GROUP BY {by} side, lower(substring_index(address, '@', -1)), id
        )
        SELECT
            {by}
            side,
            domain,
            count(*) AS messages,
            sum(addresses) AS addresses,
            coalesce(sum(octets), 0) AS octets
        FROM once
        GROUP BY {by} side, domain
    """,
}
"""Sums that views show of all time, and tables by day. ``{by}``: columns that they are by as well."""


def summed(name: str, by: str = "") -> str:
    """That one of ``SUMS``. ``by``: ``day,`` or ``day, node,``."""
    return worded(SUMS[name].replace("{by}", by))


VIEWS = {
    "deliveries": worded("""
        WITH accepted AS (
            SELECT coalesce(database, node) AS log, network_message_id AS id, min(date_time) AS accepted_at
            FROM events
            WHERE {begins} AND network_message_id IS NOT NULL
            GROUP BY coalesce(database, node), network_message_id
        )
        SELECT
            sent.node,
            sent.server_hostname AS next_hop,
            sent.event_id,
            sent.network_message_id,
            coalesce(size(sent.recipient_address), 0) AS recipients,
            sent.total_bytes,
            accepted.accepted_at,
            sent.date_time AS delivered_at,
            (unix_micros(sent.date_time) - unix_micros(accepted.accepted_at)) / 1000000D AS seconds
        FROM events AS sent LEFT JOIN accepted
            ON accepted.log = coalesce(sent.database, sent.node) AND accepted.id = sent.network_message_id
        WHERE sent.event_id IN ('SEND', 'SENDEXTERNAL', 'DELIVER')
    """),
    "latencies": """
        SELECT
            next_hop,
            count(*) AS deliveries,
            sum(recipients) AS recipients,
            percentile_disc(0.5D) WITHIN GROUP (ORDER BY seconds) AS p50,
            percentile_disc(0.95D) WITHIN GROUP (ORDER BY seconds) AS p95,
            percentile_disc(0.99D) WITHIN GROUP (ORDER BY seconds) AS p99,
            max(seconds) AS longest
        FROM deliveries
        WHERE seconds IS NOT NULL
        GROUP BY next_hop
    """,
    "traffic": worded("""
        SELECT
            date_trunc('HOUR', date_time) AS hour,
            node,
            count_if({received}) AS received,
            coalesce(sum(CASE WHEN {received} THEN total_bytes END), 0) AS octets,
            count_if(event_id IN ('SEND', 'SENDEXTERNAL', 'DELIVER')) AS delivered,
            count_if(event_id = 'DUPLICATEDELIVER') AS dropped_as_duplicates,
            count_if(event_id = 'DEFER') AS deferred,
            count_if(event_id = 'FAIL') AS failed,
            count_if(event_id = 'RESUBMIT' AND source = 'REDUNDANCY' AND custom_data['HopDb'] IS NULL)
                AS promoted,
            count_if(event_id = 'RECEIVE' AND custom_data['Replication'] IS NOT NULL) AS exposed,
            count_if({resubmitted}) AS resubmitted
        FROM events
        WHERE date_time IS NOT NULL
        GROUP BY date_trunc('HOUR', date_time), node
    """),
    "reasons": summed("reasons"),
    "promotions": summed("promotions"),
    "domains": summed("domains"),
}
"""Each may use those before it."""


def create(events: Any) -> None:
    """Temporary views of the session of that DataFrame: ``events``, and all of ``VIEWS`` over it."""
    events.createOrReplaceTempView(EVENTS)
    for name, query in VIEWS.items():
        events.sparkSession.sql(query).createOrReplaceTempView(name)
