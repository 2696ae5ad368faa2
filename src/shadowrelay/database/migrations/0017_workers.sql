-- How many workers each node has, as its first worker said last.
CREATE TABLE node_workers (
    node    TEXT PRIMARY KEY NOT NULL,
    workers INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
