-- What was arriving when a process ended is asked about, as messages are. While the node runs, nothing that
-- arrives is: so the index still costs nothing when a message is accepted.
DROP INDEX message_open;
CREATE INDEX message_open ON message (id, confirmation, stage, confirm_since, pending, owner)
    WHERE confirmation <> 'none' AND stage IN ('queued', 'arriving');
