-- The 20 directories whose own files grew most between two snapshots.
-- Tables: before, after
WITH
old AS (
    SELECT directory, count(*) AS files, sum(size) AS bytes
    FROM before
    WHERE kind <> 'directory'
    GROUP BY directory
),
new AS (
    SELECT directory, count(*) AS files, sum(size) AS bytes
    FROM after
    WHERE kind <> 'directory'
    GROUP BY directory
),
growth AS (
    SELECT
        coalesce(new.directory, old.directory) AS directory,
        coalesce(new.bytes, 0) - coalesce(old.bytes, 0) AS growth_bytes,
        coalesce(new.files, 0) - coalesce(old.files, 0) AS more_files,
        coalesce(new.bytes, 0) AS size_bytes
    FROM old
    FULL JOIN new ON old.directory = new.directory
),
largest AS (
    SELECT directory, growth_bytes, more_files, size_bytes
    FROM growth
    WHERE growth_bytes > 0
    ORDER BY growth_bytes DESC, directory
    LIMIT 20
)
SELECT
    largest.directory,
    names.name,
    largest.growth_bytes,
    largest.more_files,
    largest.size_bytes
FROM largest
LEFT JOIN (SELECT inode, name FROM after WHERE kind = 'directory') AS names
    ON names.inode = largest.directory
ORDER BY largest.growth_bytes DESC, largest.directory
