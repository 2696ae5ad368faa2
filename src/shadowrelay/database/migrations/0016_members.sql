
-- Members that were announced while the node ran, as the cluster's authority signed them. The newest announcement of each.
CREATE TABLE announced_member (
    name   TEXT PRIMARY KEY NOT NULL,
    serial INTEGER NOT NULL,
    signed TEXT NOT NULL
) STRICT, WITHOUT ROWID;
