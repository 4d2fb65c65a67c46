-- The 20 users with the most allocated bytes.
-- Tables: snapshot
SELECT
    uid,
    count(*) AS files,
    sum(size) AS size_bytes,
    sum(allocated) AS allocated_bytes
FROM snapshot
GROUP BY uid
ORDER BY allocated_bytes DESC, uid
LIMIT 20
