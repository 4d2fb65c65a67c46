-- The 20 calls that took longest.
-- Tables: trace
SELECT
    duration_ns,
    time,
    operation,
    program,
    process,
    path,
    size AS size_bytes,
    error
FROM trace
ORDER BY duration_ns DESC, time
LIMIT 20
