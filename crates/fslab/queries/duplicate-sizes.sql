-- The 20 sizes at which equal files would waste the most bytes. Files of equal size may be copies.
-- Tables: snapshot
SELECT
    size AS size_bytes,
    count(*) AS files,
    (count(*) - 1) * size AS waste_max_bytes
FROM snapshot
WHERE kind = 'file' AND size > 0
GROUP BY size
HAVING count(*) > 1
ORDER BY waste_max_bytes DESC, size
LIMIT 20
