-- What is done to very many messages is done part by part: what is left of it, and where it goes on.
CREATE TABLE chore (
    work    TEXT NOT NULL,
    member  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    step    INTEGER NOT NULL,
    place   TEXT NOT NULL,  -- an id: the part behind it comes next
    PRIMARY KEY (work, member)
) WITHOUT ROWID;
