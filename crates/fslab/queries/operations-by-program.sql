-- Calls, errors, bytes and time by program and operation.
-- Tables: trace
SELECT
    program,
    operation,
    count(*) AS calls,
    count(error) AS errors,
    sum(size) AS size_bytes,
    sum(duration_ns) AS duration_ns,
    max(duration_ns) AS duration_max_ns
FROM trace
GROUP BY program, operation
ORDER BY duration_ns DESC, program, operation
