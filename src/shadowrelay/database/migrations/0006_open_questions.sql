-- A long queue is asked about part by part, by id, and without its rows. Like the index by confirmation, this one costs
-- nothing when a message is accepted.
CREATE INDEX message_open ON message (id, confirmation, stage, confirm_since, pending, owner)
    WHERE confirmation <> 'none' AND stage = 'queued';
