-- Calls that are not entered yet lie in rows of a page's size, which stay and are written over: a row that came and
-- went took pages and gave them back, and changed with them what says which pages are free.
CREATE TABLE new_pages (
    -- From zero on, without a gap.
    place   INTEGER PRIMARY KEY,
    -- So many bytes are calls, in the order in which they were paid.
    used    INTEGER NOT NULL,
    records BLOB NOT NULL
) STRICT;
INSERT INTO new_pages SELECT row_number() OVER (ORDER BY seq) - 1, length(records), records
FROM new_calls;
DROP TABLE new_calls;
ALTER TABLE new_pages RENAME TO new_calls;

-- Calls with numbers up to this one are entered, whatever rows there are still have of them.
CREATE TABLE entered (last_seq INTEGER NOT NULL) STRICT;
INSERT INTO entered VALUES (0);
