-- The changes between two snapshots, counted as by `fslab age diff`.
-- Tables: before, after
WITH
pairs AS (
    SELECT
        before.size AS old_size,
        after.size AS new_size,
        before.inode IS NOT NULL AS is_old,
        after.inode IS NOT NULL AS is_new,
        -- The number of an inode is reused if its creation time or its generation differs.
        before.inode IS NOT NULL
            AND after.inode IS NOT NULL
            AND before.kind = after.kind
            AND coalesce(before.born = after.born, TRUE)
            AND coalesce(before.generation = after.generation, TRUE) AS is_same,
        before.kind <> 'directory'
            AND (before.modified <> after.modified OR before.size <> after.size) AS is_written,
        before.directory <> after.directory
            OR before.name_bytes <> after.name_bytes AS is_renamed,
        before.mode <> after.mode
            OR before.uid <> after.uid
            OR before.gid <> after.gid AS is_changed
    FROM before
    FULL JOIN after ON before.inode = after.inode
)
SELECT
    count(CASE WHEN is_same AND NOT is_written AND NOT is_renamed AND NOT is_changed THEN 1 END)
        AS unchanged,
    count(CASE WHEN is_new AND NOT is_same THEN 1 END) AS created,
    count(CASE WHEN is_old AND NOT is_same THEN 1 END) AS deleted,
    count(CASE WHEN is_same AND is_written AND new_size = old_size THEN 1 END) AS modified,
    count(CASE WHEN is_same AND is_written AND new_size > old_size THEN 1 END) AS grown,
    count(CASE WHEN is_same AND is_written AND new_size < old_size THEN 1 END) AS truncated,
    count(CASE WHEN is_same AND is_renamed THEN 1 END) AS renamed,
    count(CASE WHEN is_same AND is_changed THEN 1 END) AS attributes,
    coalesce(sum(CASE WHEN is_new AND NOT is_same THEN new_size END), 0) AS created_bytes,
    coalesce(sum(CASE WHEN is_old AND NOT is_same THEN old_size END), 0) AS deleted_bytes
FROM pairs
