-- Each index is a page more in the commit that a sender waits for. What a holder has of ours is found from the queue;
-- one index serves both who looks for the copies held for an owner and who looks for those to be asked about.
DROP INDEX holder_name;
DROP INDEX message_held;
DROP INDEX message_check;
CREATE INDEX message_shadow ON message (owner, check_at) WHERE role = 'shadow' AND stage = 'queued';
