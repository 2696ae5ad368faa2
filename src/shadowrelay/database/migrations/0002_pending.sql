-- A promotion is first pending: why a shadow copy is to be promoted, once the other members were asked.
ALTER TABLE message ADD COLUMN pending TEXT;

-- A tombstone refuses the offers of the member that revoked, and of no other.
ALTER TABLE tombstone ADD COLUMN owner TEXT NOT NULL DEFAULT '';
