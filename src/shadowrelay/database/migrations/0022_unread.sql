-- unread: a host took the content for this recipient in so many tries, and its answers could not be read: '<tries> <host>'.
ALTER TABLE recipient ADD COLUMN unread TEXT;
-- Few have a value; these are counted.
CREATE INDEX recipient_unread ON recipient (next_hop, unread) WHERE unread IS NOT NULL;
