-- What is swept every minute, or read at a start, is found without reading all that is kept for days.
CREATE INDEX outcome_keep ON outcome (keep_until);
CREATE INDEX tombstone_keep ON tombstone (keep_until);
CREATE INDEX content_file ON content (path) WHERE path IS NOT NULL;
