"""Sums of events by day, as SQL over ``events``: what ``shadowaudit summary`` and dashboards need."""

from __future__ import annotations

from shadowaudit.spark.tables.schemas import DOMAINS, LATENCIES, PROMOTIONS, REASONS, SIZES, TRAFFIC
from shadowaudit.spark.views import VIEWS

SUMS = {
    TRAFFIC: VIEWS["traffic"],
    REASONS: """
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
                network_message_id
            FROM events
            WHERE event_id IN ('DEFER', 'FAIL') AND date_time IS NOT NULL
        )
        SELECT
            day, node, event_id, next_hop,
            nullif(regexp_extract(reply, '^([245][0-9][0-9])', 1), '') AS code,
            nullif(regexp_extract(reply, '^[245][0-9][0-9][ -]([245][.][0-9]+[.][0-9]+)', 1), '') AS status,
            reply,
            count(*) AS times,
            sum(recipients) AS recipients,
            min(network_message_id) AS example
        FROM told
        GROUP BY day, node, event_id, next_hop, reply
    """,
    DOMAINS: """
        WITH received AS (
            SELECT * FROM events WHERE event_id = 'RECEIVE' AND date_time IS NOT NULL
        ),
        named AS (
            SELECT to_date(date_time) AS day, node, 'sender' AS side, network_message_id, message_id,
                total_bytes, sender_address AS address
            FROM received
            UNION ALL
            SELECT to_date(date_time), node, 'recipient', network_message_id, message_id, total_bytes,
                explode(recipient_address)
            FROM received
        ),
        once AS (
            SELECT day, node, side, lower(substring_index(address, '@', -1)) AS domain,
                coalesce(network_message_id, message_id) AS id, max(total_bytes) AS octets,
                count(*) AS addresses
            FROM named
            WHERE address LIKE '%@%'
            GROUP BY day, node, side, lower(substring_index(address, '@', -1)),
                coalesce(network_message_id, message_id)
        )
        SELECT day, node, side, domain, count(*) AS messages, sum(addresses) AS addresses,
            coalesce(sum(octets), 0) AS octets
        FROM once
        GROUP BY day, node, side, domain
    """,
    SIZES: """
        SELECT
            to_date(date_time) AS day,
            node,
            CAST(floor(log2(greatest(total_bytes, 1))) AS int) AS step,
            count(*) AS messages,
            sum(total_bytes) AS octets
        FROM events
        WHERE event_id = 'RECEIVE' AND total_bytes IS NOT NULL AND date_time IS NOT NULL
        GROUP BY ALL
    """,
    PROMOTIONS: """
        SELECT
            to_date(date_time) AS day,
            node,
            custom_data['Owner'] AS owner,
            custom_data['Reason'] AS reason,
            count(*) AS messages
        FROM events
        WHERE event_id = 'RESUBMIT' AND source = 'REDUNDANCY' AND date_time IS NOT NULL
        GROUP BY ALL
    """,
}
"""Each needs the events of its days alone."""

PASSED = {
    LATENCIES: """
        SELECT
            to_date(delivered_at) AS day,
            node,
            next_hop,
            CAST(floor(log10(greatest(round(seconds * 1000), 0) + 1) * 20) AS int) AS step,
            count(*) AS deliveries
        FROM deliveries
        WHERE seconds IS NOT NULL
        GROUP BY ALL
    """
}
"""Needs the acceptance of what was delivered, too, which may be of another day."""

DELIVERIES = VIEWS["deliveries"]
