-- Calls, errors, bytes and time by program, process and operation.
-- Tables: trace
SELECT
    program,
    process,
    operation,
    count(*) AS calls,
    count(error) AS errors,
    sum(size) AS size_bytes,
    sum(duration_ns) AS duration_ns,
    max(duration_ns) AS duration_max_ns
FROM trace
GROUP BY program, process, operation
ORDER BY duration_ns DESC, program, process, operation
