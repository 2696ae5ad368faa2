-- Named queries of the search for messages, newest first: ids below :after. The table is without rowid, so an index ends with the
-- id, and its rows of one value are in the order of ids. Safety Net is searched too.

-- name: by_recipient
SELECT DISTINCT message_id FROM recipient INDEXED BY recipient_address
 WHERE lower(address) = :wanted AND message_id < :after ORDER BY message_id DESC LIMIT :most;

-- name: by_sender
SELECT id FROM message INDEXED BY message_sender
 WHERE lower(sender) = :wanted AND id < :after ORDER BY id DESC LIMIT :most;

-- name: by_header
SELECT id FROM message INDEXED BY message_header WHERE message_id = :wanted AND id < :after ORDER BY id DESC LIMIT :most;

-- name: by_id
SELECT id FROM message WHERE id >= :wanted AND id < :end AND id < :after AND stage <> 'arriving'
UNION SELECT message_id FROM outcome WHERE message_id >= :wanted AND message_id < :end AND message_id < :after
UNION SELECT message_id FROM tombstone WHERE message_id >= :wanted AND message_id < :end AND message_id < :after
UNION SELECT message_id FROM damaged WHERE message_id >= :wanted AND message_id < :end AND message_id < :after
 ORDER BY 1 DESC LIMIT :most;

-- name: part
-- Where a part of the messages ends that is looked through; no row if the part is the last.
SELECT id FROM message WHERE id < :after ORDER BY id DESC LIMIT 1 OFFSET :most;

-- name: by_domain
SELECT id FROM message WHERE id < :after AND id >= :until
   AND iif(sender GLOB '*[^ -~]*', '@' || domain_of(sender), substr(lower(sender), -length(:wanted))) = :wanted
UNION SELECT message_id FROM recipient WHERE message_id < :after AND message_id >= :until
   AND iif(address GLOB '*[^ -~]*', '@' || domain_of(address), substr(lower(address), -length(:wanted))) = :wanted
 ORDER BY 1 DESC LIMIT :most;

-- name: by_subject
-- Each word is somewhere in the subject as a person reads it, without regard to case. ``read_text``, ``address_text`` and
-- ``domain_of`` are functions of the connection (selectors.py): most rows do without them.
SELECT id FROM message WHERE id < :after AND id >= :until
   AND NOT EXISTS (SELECT 1 FROM json_each(:words) word
                    WHERE instr(iif(subject GLOB '*[^ -~]*' OR instr(subject, '=?'), read_text(subject), lower(subject)), word.value) = 0)
 ORDER BY id DESC LIMIT :most;

-- name: by_words
-- Each word is somewhere in the subject or in an address.
SELECT id FROM message m WHERE id < :after AND id >= :until
   AND NOT EXISTS (
       SELECT 1 FROM json_each(:words) word
        WHERE instr(iif(subject GLOB '*[^ -~]*' OR instr(subject, '=?'), read_text(subject), lower(subject)), word.value) = 0
          AND instr(iif(sender GLOB '*[^ -~]*' OR sender LIKE '%xn--%', address_text(sender), lower(sender)), word.value) = 0
          AND NOT EXISTS (
              SELECT 1 FROM recipient r WHERE r.message_id = m.id
                 AND instr(iif(r.address GLOB '*[^ -~]*' OR r.address LIKE '%xn--%', address_text(r.address), lower(r.address)), word.value) > 0))
 ORDER BY id DESC LIMIT :most;

-- name: unwritten
SELECT sequence, columns, row_sum FROM outbox WHERE instr(columns, ?) > 0;
