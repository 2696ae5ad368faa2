-- Reads the rows of each table that has a sum in its rows, in parts. A text in braces is a table or a list of its columns.

-- name: tables
SELECT name FROM sqlite_schema AS t
 WHERE type = 'table' AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE name = 'row_sum') ORDER BY name;

-- name: columns
SELECT name, pk FROM pragma_table_info(?);

-- name: first
SELECT {columns}, row_sum FROM {table} ORDER BY {key} LIMIT {most};

-- name: behind
SELECT {columns}, row_sum FROM {table} WHERE ({key}) > ({place}) ORDER BY {key} LIMIT {most};

-- name: put_sum
UPDATE {table} SET row_sum = row_sum({columns}) WHERE ({key}) = ({place}) AND row_sum IS NULL;
