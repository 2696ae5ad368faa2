"""One row for each message, by SQL over its events. docs/reference/tables.md tells of each column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shadowaudit.spark.views import worded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "file", "line", "software", "node", "database", "incarnation", "sequence", "epoch", "date_time",
    "server_hostname", "client_hostname", "source_context", "source", "event_id", "internal_message_id",
    "message_id", "network_message_id", "recipient_address", "recipient_status", "total_bytes",
    "related_recipient_address", "reference", "message_subject", "sender_address", "custom_data", "day",
)  # fmt: skip
"""Of events: what messages, sums of events, and the search for rows that are told twice need."""

ID = "coalesce(network_message_id, message_id)"
"""Which message an event is about. Logs of Exchange 2010 have the Message-ID alone."""

_ONCE = """
    WITH identified AS (
        SELECT
            *,
            CASE
                WHEN database IS NOT NULL AND incarnation IS NOT NULL AND sequence IS NOT NULL
                THEN concat_ws('/', database, incarnation, sequence)
                ELSE sha2(to_json(struct(
                    node, date_time, server_hostname, client_hostname, source_context, source, event_id,
                    internal_message_id, message_id, network_message_id, recipient_address, recipient_status,
                    total_bytes, related_recipient_address, reference, message_subject, sender_address,
                    custom_data
                )), 256)
            END AS identity
        FROM {doubtful}
    ),
    numbered AS (
        SELECT *, row_number() OVER (PARTITION BY identity, file ORDER BY line) AS time FROM identified
    ),
    copied AS (
        SELECT *, row_number() OVER (PARTITION BY identity, time ORDER BY file, line) AS copy FROM numbered
    )
    SELECT * EXCEPT (identity, time, copy) FROM copied WHERE copy = 1
"""

_MESSAGES = """
    WITH named AS (
        SELECT
            *,
            coalesce(network_message_id, message_id) AS id,
            coalesce(database, node) AS log,
            coalesce(sequence, line) AS number,
            {begins} AS begins,
            {resubmitted} AS resubmitted,
            event_id = 'RESUBMIT' AND source = 'REDUNDANCY' AND custom_data['HopDb'] IS NULL AS promoted
        FROM {events}
        WHERE date_time IS NOT NULL AND event_id IS NOT NULL
            AND coalesce(network_message_id, message_id) IS NOT NULL
    ),
    told AS (SELECT *, struct(NOT begins, date_time, log, number) AS place FROM named),
    settled AS (
        SELECT
            id, log, number, node, date_time AS at,
            address,
            CASE
                WHEN event_id IN ('SENDEXTERNAL', 'DELIVER', 'DUPLICATEDELIVER') THEN 'delivered'
                WHEN event_id = 'SEND' AND software = 'shadowrelay' THEN 'delivered'
                WHEN event_id = 'FAIL' THEN 'failed'
                WHEN event_id = 'REMOVE' THEN 'removed'
                WHEN event_id = 'EXPIRE' THEN 'expired'
                WHEN event_id = 'DROP' THEN 'dropped'
                WHEN event_id = 'SEND' THEN 'sent'
                WHEN event_id = 'DEFER' THEN 'deferred'
                ELSE 'open'
            END AS outcome,
            server_hostname AS next_hop,
            coalesce(
                nullif(regexp_extract(get(recipient_status, nth), 'LED=([^}}]*)', 1), ''),
                CASE WHEN software = 'exchange' THEN get(recipient_status, nth) END,
                source_context
            ) AS reply
        FROM told, LATERAL posexplode(recipient_address) AS one(nth, address)
        UNION ALL
        SELECT id, log, number, node, date_time, address, 'expanded', NULL, NULL
        FROM told, LATERAL explode(related_recipient_address) AS one(address)
        WHERE event_id IN ('EXPAND', 'RESOLVE', 'REDIRECT')
            AND NOT coalesce(array_contains(recipient_address, address), false)
    ),
    steps AS (
        SELECT
            id,
            CASE
                WHEN locate('@', address) = 0 THEN address
                ELSE concat(
                    left(address, length(address) - length(substring_index(address, '@', -1))),
                    lower(substring_index(address, '@', -1))
                )
            END AS address,
            outcome,
            struct(
                CASE outcome
                    WHEN 'delivered' THEN 5
                    WHEN 'failed' THEN 4 WHEN 'removed' THEN 4 WHEN 'expired' THEN 4 WHEN 'dropped' THEN 4
                    WHEN 'sent' THEN 3
                    WHEN 'expanded' THEN 2
                    WHEN 'deferred' THEN 1
                    ELSE 0
                END AS rank,
                IF(outcome = 'deferred', 1, -1) * unix_micros(at) AS moment,
                IF(outcome = 'deferred', 1, -1) * number AS number,
                log
            ) AS weight,
            IF(outcome = 'open', NULL, struct(at, node, next_hop, reply)) AS how
        FROM settled
    ),
    recipients AS (
        SELECT
            id, address,
            max_by(outcome, weight) AS outcome,
            max_by(how, weight) AS how,
            greatest(count_if(outcome = 'delivered') - 1, 0) AS again
        FROM steps
        GROUP BY id, address
    ),
    listed AS (
        SELECT
            id,
            array_sort(collect_list(
                struct(address, outcome, how.at AS at, how.node AS node, how.next_hop AS next_hop,
                    how.reply AS reply)
            )) AS recipients,
            sum(again) AS duplicates
        FROM recipients
        GROUP BY id
    ),
    summed AS (
        SELECT
            id,
            min_by(message_id, place) FILTER (WHERE message_id IS NOT NULL)
                AS message_id,
            min_by(message_subject, place)
                FILTER (WHERE message_subject IS NOT NULL) AS subject,
            min_by(sender_address, place)
                FILTER (WHERE sender_address IS NOT NULL) AS sender,
            min_by(total_bytes, place)
                FILTER (WHERE total_bytes IS NOT NULL) AS size,
            min_by(custom_data['Content'], place)
                FILTER (WHERE custom_data['Content'] IS NOT NULL) AS content,
            min_by(custom_data['Envelope'], place)
                FILTER (WHERE custom_data['Envelope'] IS NOT NULL) AS envelope,
            max_by(node, struct(coalesce(epoch, 1), date_time, log, number)) FILTER (WHERE begins OR promoted)
                AS owner,
            array_sort(collect_set(
                CASE event_id WHEN 'HARECEIVE' THEN node WHEN 'HAREDIRECT' THEN server_hostname END
            )) AS holders,
            min(date_time) FILTER (WHERE begins) AS accepted_at,
            min(date_time) AS first_at,
            max(date_time) AS last_at,
            coalesce(bool_or(event_id = 'RECEIVE' AND custom_data['Replication'] IS NOT NULL), false)
                AS exposed,
            min(date_time) FILTER (WHERE event_id = 'DROP' AND coalesce(size(recipient_address), 0) = 0)
                AS dropped_at,
            count_if(event_id = 'DEFER') AS deferrals,
            count_if(promoted) AS promotions,
            min(reference) FILTER (WHERE resubmitted) AS original,
            array_sort(collect_set(node)) AS nodes,
            count(*) AS events
        FROM told
        GROUP BY id
    ),
    ended AS (
        SELECT
            summed.*,
            transform(
                coalesce(listed.recipients, array()),
                one -> IF(
                    dropped_at IS NOT NULL AND one.outcome IN ('open', 'deferred'),
                    struct(one.address AS address, 'dropped' AS outcome, dropped_at AS at, one.node AS node,
                        one.next_hop AS next_hop, one.reply AS reply),
                    one
                )
            ) AS recipients,
            coalesce(listed.duplicates, 0) AS duplicates
        FROM summed LEFT JOIN listed USING (id)
    )
    SELECT
        id AS network_message_id,
        message_id, subject, sender, size, content, envelope, owner, holders, accepted_at, first_at, last_at,
        CASE
            WHEN size(recipients) > 0
                AND forall(recipients, one -> one.outcome NOT IN ('open', 'deferred', 'sent'))
            THEN array_max(transform(recipients, one -> one.at))
        END AS finished_at,
        exposed,
        recipients,
        CAST(deferrals AS int) AS deferrals,
        CAST(promotions AS int) AS promotions,
        CAST(duplicates AS int) AS duplicates,
        original,
        nodes,
        CAST(events AS int) AS events,
        to_date(first_at) AS day
    FROM ended
"""


def once(events: DataFrame, doubtful: list[str]) -> DataFrame:
    """These events without those that another file tells, too.

    ``doubtful``: logs that may have rows of others. A row counts as often as it stands in one file.
    """
    if not doubtful:
        return events
    doubt = events.file.isin(doubtful)
    told = events.sparkSession.sql(_ONCE, doubtful=events.where(doubt))
    return events.where(~doubt).unionByName(told.select(events.columns))


def messages(events: DataFrame) -> DataFrame:
    """The messages of these events, which are all events of each. In the shape of the table."""
    return events.sparkSession.sql(worded(_MESSAGES), events=events)
