-- Compares tables with their indexes (indexes.py). What is in braces comes from the schema of the file.

-- name: tables
SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name;

-- name: key
SELECT name, type FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk;

-- name: indexes
SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? ORDER BY name;

-- name: columns
SELECT name FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno;

-- name: rows
-- A part of a table: the key of each row, whether the row is not found by it, and for each index whether it is missing there.
SELECT {key}, {flags} FROM (SELECT {told} FROM {table} WHERE {behind} LIMIT ?)

-- name: not_by_key
-- Or it is not behind the row before it: a page that is there twice has its rows twice.
coalesce(({key}) <= ({before}), 0) OR NOT EXISTS (SELECT 1 FROM {table} WHERE {same})

-- name: not_by_index
{meant} AND NOT EXISTS (SELECT 1 FROM {table} INDEXED BY {index} WHERE ({condition}) AND {same})

-- name: entries
-- A part of an index: each entry, and whether there is no such row.
SELECT {entry}, NOT EXISTS (SELECT 1 FROM {rows} WHERE ({condition}) AND {same})
  FROM (SELECT {told} FROM {table} INDEXED BY {index} WHERE ({condition}) AND {behind} LIMIT ?)

-- name: known
-- Is any row of a message there?
SELECT EXISTS (SELECT 1 FROM message WHERE id = ?1) OR EXISTS (SELECT 1 FROM recipient WHERE message_id = ?1);

-- name: structure
-- Looks at the pages, and not at what they say.
PRAGMA quick_check(1);

-- name: rebuild
REINDEX {index};
