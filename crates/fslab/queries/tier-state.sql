-- Files and bytes of a tier by user and state.
-- Tables: tier
SELECT
    uid,
    state,
    count(*) AS files,
    sum(size) AS size_bytes,
    sum(allocated) AS allocated_bytes
FROM tier
GROUP BY uid, state
ORDER BY uid, state
