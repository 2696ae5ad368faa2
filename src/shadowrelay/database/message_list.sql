-- What messages are sorted by (message_list.py): the ids are given, in any number. A message with damaged rows has no row here, and sorts
-- first. Of its recipients those count that are not settled. ``read_text`` is a function of the connection (selectors.py).

-- name: by_size
SELECT value, ifnull(m.size, -1) FROM json_each(:ids) LEFT JOIN message m ON m.id = value;

-- name: by_sender
SELECT value, ifnull(lower(m.sender), '') FROM json_each(:ids) LEFT JOIN message m ON m.id = value;

-- name: by_subject
SELECT value, iif(m.subject IS NULL, '', read_text(m.subject)) FROM json_each(:ids) LEFT JOIN message m ON m.id = value;

-- name: by_recipient
SELECT value, ifnull((SELECT lower(r.address) FROM recipient r WHERE r.message_id = value ORDER BY r.status <> 'ready', r.number LIMIT 1), '')
  FROM json_each(:ids);

-- name: by_next_hop
SELECT value, ifnull((SELECT r.next_hop FROM recipient r WHERE r.message_id = value ORDER BY r.status <> 'ready', r.number LIMIT 1), '')
  FROM json_each(:ids);

-- name: by_reason
SELECT value, ifnull((SELECT r.last_reply FROM recipient r WHERE r.message_id = value ORDER BY r.status <> 'ready', r.number LIMIT 1), '')
  FROM json_each(:ids);

-- name: by_attempts
SELECT value, ifnull((SELECT max(r.attempts) FROM recipient r WHERE r.message_id = value AND r.status = 'ready'), -1)
  FROM json_each(:ids);

-- name: before_in_safety_net
SELECT id FROM message WHERE stage = 'safety_net' AND id < ? ORDER BY id DESC LIMIT ?;
