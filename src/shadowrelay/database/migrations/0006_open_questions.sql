-- A long queue is asked about part by part, by id. Like the index by confirmation, it costs nothing when a message is
-- accepted.
CREATE INDEX message_open ON message (id, confirm_since, pending, owner) WHERE confirmation <> 'none' AND stage = 'queued';
