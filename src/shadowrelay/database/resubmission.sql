-- What is read of Safety Net for operators, on a connection of its own (reading.py). A selector's conditions are those
-- of ``resubmittable`` in queries.sql.

-- name: count
-- Counts recipients by what a request would make of them. ``told`` is one number, because SQLite sorts the rows of a
-- group by it: the owner's place among those asked about, and flags (resubmission.py). The first flag: no recipient with
-- a lower number and the same status matches, so the message is counted here; most rows have number 1.
SELECT found.told, COUNT(*), SUM(found.size) FROM (
    SELECT (r.number = 1 OR NOT EXISTS (
               SELECT 1 FROM recipient x
                WHERE x.message_id = r.message_id AND x.number < r.number AND x.status = r.status
                  AND x.settled_at BETWEEN :since AND :until
                  AND (:hops IS NULL OR x.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(x.next_hop, 1, instr(x.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
                  AND (:recipient IS NULL OR iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)) = :recipient)
                  AND (:recipient_end IS NULL
                       OR substr(iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)), -length(:recipient_end))
                          = :recipient_end)))
           + 2 * (r.status = 'relayed') + 4 * (m.request IS NOT NULL)
           + 8 * (m.damage IS NOT NULL OR m.content_digest IS NULL) + 16 * (m.stage <> 'safety_net')
           + CASE m.owner
                  WHEN :owner1 THEN 64 + 32 * (m.owner_database IS :database1)
                  WHEN :owner2 THEN 128 + 32 * (m.owner_database IS :database2)
                  WHEN :owner3 THEN 192 + 32 * (m.owner_database IS :database3)
                  WHEN :owner4 THEN 256 + 32 * (m.owner_database IS :database4)
                  WHEN :owner5 THEN 320 + 32 * (m.owner_database IS :database5)
                  WHEN :owner6 THEN 384 + 32 * (m.owner_database IS :database6)
                  WHEN :owner7 THEN 448 + 32 * (m.owner_database IS :database7)
                  WHEN :owner8 THEN 512 + 32 * (m.owner_database IS :database8)
                  ELSE 0 END AS told,
           m.size AS size
      FROM recipient r INDEXED BY recipient_settled CROSS JOIN message m ON m.id = r.message_id
     WHERE r.settled_at IS NOT NULL AND r.settled_at BETWEEN :begin AND :end AND r.status IN ('delivered', 'relayed')
       AND (:hops IS NULL OR r.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(r.next_hop, 1, instr(r.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
       AND (:recipient IS NULL OR iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)) = :recipient)
       AND (:recipient_end IS NULL
            OR substr(iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)), -length(:recipient_end)) = :recipient_end)
       AND m.stage IN ('safety_net', 'queued')
       AND (:id IS NULL OR m.id = :id)
       AND (:message_id IS NULL OR m.message_id = :message_id)
       AND (:sender IS NULL OR iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)) = :sender)
       AND (:sender_end IS NULL
            OR substr(iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)), -length(:sender_end)) = :sender_end)
     LIMIT -1) AS found
 GROUP BY found.told;

-- name: untimed
-- Messages that were settled in the window, with recipients of whose settlement nobody here knows the time.
SELECT CASE m.owner
            WHEN :owner1 THEN 1
            WHEN :owner2 THEN 2
            WHEN :owner3 THEN 3
            WHEN :owner4 THEN 4
            WHEN :owner5 THEN 5
            WHEN :owner6 THEN 6
            WHEN :owner7 THEN 7
            WHEN :owner8 THEN 8
            ELSE 0 END, COUNT(DISTINCT m.id)
  FROM recipient r INDEXED BY recipient_untimed CROSS JOIN message m ON m.id = r.message_id
 WHERE r.settled_at IS NULL AND r.status <> 'ready' AND r.status IN ('delivered', 'relayed')
   AND m.stage = 'safety_net' AND m.settled_at BETWEEN :since AND :until
   AND (:hops IS NULL OR r.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(r.next_hop, 1, instr(r.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
   AND (:recipient IS NULL OR iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)) = :recipient)
   AND (:recipient_end IS NULL
        OR substr(iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)), -length(:recipient_end)) = :recipient_end)
   AND (:id IS NULL OR m.id = :id)
   AND (:message_id IS NULL OR m.message_id = :message_id)
   AND (:sender IS NULL OR iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)) = :sender)
   AND (:sender_end IS NULL
        OR substr(iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)), -length(:sender_end)) = :sender_end)
 GROUP BY 1;

-- name: earliest
SELECT MIN(settled_at) FROM recipient WHERE settled_at IS NOT NULL;

-- name: page
-- One row for each message that matches, at the time of its first recipient that matches.
SELECT DISTINCT r.settled_at, m.id, m.role, m.owner, m.sender, m.size, m.subject, m.message_id, m.request, m.damage,
       (SELECT json_group_array(json_array(x.address, x.next_hop, x.status)) FROM recipient x
         WHERE x.message_id = m.id AND x.settled_at BETWEEN :since AND :until
           AND x.status IN ('delivered', 'relayed')
           AND (:hops IS NULL OR x.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(x.next_hop, 1, instr(x.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
           AND (:recipient IS NULL OR iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)) = :recipient)
           AND (:recipient_end IS NULL
                OR substr(iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)), -length(:recipient_end)) = :recipient_end))
  FROM recipient r INDEXED BY recipient_settled CROSS JOIN message m ON m.id = r.message_id
 WHERE r.settled_at IS NOT NULL AND r.settled_at <= :until AND (r.settled_at, r.message_id) > (:at, :after)
   AND r.status IN ('delivered', 'relayed')
   AND (:hops IS NULL OR r.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(r.next_hop, 1, instr(r.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
   AND (:recipient IS NULL OR iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)) = :recipient)
   AND (:recipient_end IS NULL
        OR substr(iif(r.address GLOB '*[^ -~]*', compared(r.address), lower(r.address)), -length(:recipient_end)) = :recipient_end)
   AND m.stage = 'safety_net'
   AND (:id IS NULL OR m.id = :id)
   AND (:message_id IS NULL OR m.message_id = :message_id)
   AND (:sender IS NULL OR iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)) = :sender)
   AND (:sender_end IS NULL
        OR substr(iif(m.sender GLOB '*[^ -~]*', compared(m.sender), lower(m.sender)), -length(:sender_end)) = :sender_end)
   AND NOT EXISTS (
       SELECT 1 FROM recipient x
        WHERE x.message_id = r.message_id AND x.settled_at >= :since AND x.settled_at < r.settled_at
          AND x.status IN ('delivered', 'relayed')
          AND (:hops IS NULL OR x.next_hop IN (SELECT value FROM json_each(:hops))
            OR substr(x.next_hop, 1, instr(x.next_hop, '/') - 1) IN (SELECT value FROM json_each(:hops)))
          AND (:recipient IS NULL OR iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)) = :recipient)
          AND (:recipient_end IS NULL
               OR substr(iif(x.address GLOB '*[^ -~]*', compared(x.address), lower(x.address)), -length(:recipient_end)) = :recipient_end))
 ORDER BY r.settled_at, r.message_id LIMIT :most;
