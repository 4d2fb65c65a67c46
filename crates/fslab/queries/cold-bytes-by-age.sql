-- Files and bytes by the time since their content was modified, up to the newest change.
-- Tables: snapshot
WITH
newest AS (
    SELECT extract(epoch FROM max(changed)) AS seconds
    FROM snapshot
),
ages AS (
    SELECT
        size,
        allocated,
        newest.seconds - extract(epoch FROM modified) AS seconds
    FROM snapshot
    CROSS JOIN newest
    WHERE kind = 'file'
),
classes AS (
    SELECT
        size,
        allocated,
        CASE
            WHEN seconds < 86400 THEN 0
            WHEN seconds < 7 * 86400 THEN 1
            WHEN seconds < 30 * 86400 THEN 7
            WHEN seconds < 90 * 86400 THEN 30
            WHEN seconds < 365 * 86400 THEN 90
            WHEN seconds < 730 * 86400 THEN 365
            ELSE 730
        END AS days
    FROM ages
)
SELECT
    days AS days_min,
    count(*) AS files,
    sum(size) AS size_bytes,
    sum(allocated) AS allocated_bytes
FROM classes
GROUP BY days
ORDER BY days
