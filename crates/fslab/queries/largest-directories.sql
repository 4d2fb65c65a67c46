-- The 20 directories with the most entries.
-- Tables: snapshot
WITH largest AS (
    SELECT
        directory,
        count(*) AS entries,
        sum(CASE WHEN kind = 'directory' THEN 0 ELSE size END) AS size_bytes
    FROM snapshot
    GROUP BY directory
    ORDER BY entries DESC, directory
    LIMIT 20
)
SELECT
    largest.directory,
    names.name,
    largest.entries,
    largest.size_bytes
FROM largest
LEFT JOIN (SELECT inode, name FROM snapshot WHERE kind = 'directory') AS names
    ON names.inode = largest.directory
ORDER BY largest.entries DESC, largest.directory
