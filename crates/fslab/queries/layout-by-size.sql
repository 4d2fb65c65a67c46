-- Fragmentation by size: a class has the files from its smallest size up to twice that size.
-- Tables: snapshot
WITH classes AS (
    SELECT
        CAST(floor(log2(size)) AS BIGINT) AS class,
        blocks,
        breaks
    FROM snapshot
    WHERE kind = 'file' AND size > 0 AND blocks > 0
)
SELECT
    CAST(power(2, class) AS BIGINT) AS size_min_bytes,
    count(*) AS files,
    sum(blocks) AS blocks,
    CAST(sum(breaks + 1) AS DOUBLE) / count(*) AS pieces_per_file,
    CAST(sum(breaks) AS DOUBLE) / nullif(sum(blocks - 1), 0) AS breaks_share
FROM classes
GROUP BY class
ORDER BY class
