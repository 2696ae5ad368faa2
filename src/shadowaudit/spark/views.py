"""What people ask of events, as views of Spark SQL over them. docs/how-to/spark.md tells of each."""

from __future__ import annotations

from typing import Any

EVENTS = "events"

VIEWS = {
    "deliveries": """
        WITH accepted AS (
            SELECT coalesce(database, node) AS log, network_message_id AS id, min(date_time) AS accepted_at
            FROM events
            WHERE event_id IN ('RECEIVE', 'DSN') AND network_message_id IS NOT NULL
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
    """,
    "latencies": """
        SELECT
            next_hop,
            count(*) AS deliveries,
            sum(recipients) AS recipients,
            percentile_approx(seconds, 0.5D) AS p50,
            percentile_approx(seconds, 0.95D) AS p95,
            percentile_approx(seconds, 0.99D) AS p99,
            max(seconds) AS longest
        FROM deliveries
        GROUP BY next_hop
    """,
    "traffic": """
        SELECT
            date_trunc('HOUR', date_time) AS hour,
            node,
            count_if(event_id = 'RECEIVE') AS received,
            coalesce(sum(CASE WHEN event_id = 'RECEIVE' THEN total_bytes END), 0) AS octets,
            count_if(event_id IN ('SEND', 'SENDEXTERNAL', 'DELIVER')) AS delivered,
            count_if(event_id = 'DUPLICATEDELIVER') AS dropped_as_duplicates,
            count_if(event_id = 'DEFER') AS deferred,
            count_if(event_id = 'FAIL') AS failed,
            count_if(event_id = 'RESUBMIT' AND source = 'REDUNDANCY') AS promoted,
            count_if(event_id = 'RECEIVE' AND custom_data['Replication'] IS NOT NULL) AS exposed
        FROM events
        WHERE date_time IS NOT NULL
        GROUP BY date_trunc('HOUR', date_time), node
    """,
    "reasons": """
        WITH told AS (
            SELECT
                event_id,
                server_hostname AS next_hop,
                coalesce(nullif(regexp_extract(recipient_status[0], 'LED=([^}]*)', 1), ''), source_context)
                    AS reply,
                coalesce(size(recipient_address), 0) AS recipients,
                network_message_id,
                date_time
            FROM events
            WHERE event_id IN ('DEFER', 'FAIL')
        )
        SELECT
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
        GROUP BY event_id, next_hop, reply
    """,
    "promotions": """
        SELECT
            node,
            custom_data['Owner'] AS owner,
            custom_data['Reason'] AS reason,
            count(*) AS messages,
            min(date_time) AS first_at,
            max(date_time) AS last_at
        FROM events
        WHERE event_id = 'RESUBMIT' AND source = 'REDUNDANCY'
        GROUP BY node, custom_data['Owner'], custom_data['Reason']
    """,
    "domains": """
        WITH named AS (
            SELECT 'sender' AS side, network_message_id, total_bytes, sender_address AS address
            FROM events WHERE event_id = 'RECEIVE'
            UNION ALL
            SELECT 'recipient', network_message_id, total_bytes, explode(recipient_address)
            FROM events WHERE event_id = 'RECEIVE'
        ),
        once AS (
            SELECT side, lower(substring_index(address, '@', -1)) AS domain, network_message_id,
                max(total_bytes) AS octets, count(*) AS addresses
            FROM named
            WHERE address LIKE '%@%'
            GROUP BY side, lower(substring_index(address, '@', -1)), network_message_id
        )
        SELECT side, domain, count(*) AS messages, sum(addresses) AS addresses, sum(octets) AS octets
        FROM once
        GROUP BY side, domain
    """,
}
"""Each may use those before it."""


def create(events: Any) -> None:
    """Temporary views of the session of that DataFrame: ``events``, and all of ``VIEWS`` over it."""
    events.createOrReplaceTempView(EVENTS)
    for name, query in VIEWS.items():
        events.sparkSession.sql(query).createOrReplaceTempView(name)
