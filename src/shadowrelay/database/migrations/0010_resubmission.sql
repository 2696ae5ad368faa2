-- Safety Net gives mail back. When a recipient was settled, by the clock of the node that delivered: resubmit requests
-- name a window of it. The index answers for a million messages what a request for a route would make. The second one
-- has recipients whose settlement was learnt from a node that remembers the bare id: hardly any.
ALTER TABLE recipient ADD COLUMN settled_at INTEGER;
CREATE INDEX recipient_settled ON recipient (settled_at, message_id, status, next_hop) WHERE settled_at IS NOT NULL;
CREATE INDEX recipient_untimed ON recipient (message_id) WHERE settled_at IS NULL AND status <> 'ready';
ALTER TABLE discard_event ADD COLUMN settled_at INTEGER;

-- A message made of another one: whose content it has, and the resubmit request that called for it.
ALTER TABLE message ADD COLUMN content_of TEXT;
ALTER TABLE message ADD COLUMN request TEXT;
CREATE INDEX message_resubmitted ON message (role, stage) WHERE request IS NOT NULL AND stage <> 'safety_net';

-- A content that several messages use is stored once, with one of them: the others name that one.
CREATE TABLE shared_content (
    message_id TEXT PRIMARY KEY,
    content_of TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX shared_content_of ON shared_content (content_of);

-- Since when a member has the database that it has: what its holders keep of the time before, they answer for.
ALTER TABLE member ADD COLUMN broken_at INTEGER;

-- A resubmit request. What decides is in one column, as JSON: it is read and written whole.
CREATE TABLE request (
    id   TEXT PRIMARY KEY,
    told TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE progress (
    request TEXT NOT NULL,
    node    TEXT NOT NULL,
    owner   TEXT NOT NULL,
    told    TEXT NOT NULL,
    PRIMARY KEY (request, node, owner)
) WITHOUT ROWID;

-- The journal copy for which a settled recipient waits.
ALTER TABLE recipient ADD COLUMN journal TEXT;
