-- Whether any copy held for an owner has no pending promotion is asked at each failed heartbeat: the index answers,
-- however many copies are pending.
DROP INDEX message_shadow;
CREATE INDEX message_shadow ON message (owner, check_at, pending) WHERE role = 'shadow' AND stage = 'queued';
