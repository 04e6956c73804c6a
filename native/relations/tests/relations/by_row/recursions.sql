-- the first rows, the last step observed
r AS (SELECT 0 AS step, k, val FROM w UNION ALL SELECT step + 1, k, sin(val) + val * val * 0.1 FROM r WHERE step < 4),
loss AS (SELECT SUM(val * val) AS l FROM r WHERE step = 4)

-- every step observed
r AS (SELECT 0 AS step, k, val FROM w UNION ALL SELECT step + 1, k, sin(val) + val * val * 0.1 FROM r WHERE step < 4),
loss AS (SELECT SUM(power(r.val - y.val, 2)) AS l FROM r JOIN y ON r.step = y.step AND r.k = y.k)

-- read in every iteration
r AS (SELECT 0 AS step, k, CAST(k AS DOUBLE) / 4 AS val FROM y WHERE step < 3
      UNION ALL SELECT r.step + 1, r.k, tanh(r.val * w.val + w.val) FROM r JOIN w ON r.k = w.k WHERE r.step < 4),
loss AS (SELECT SUM(val * val * (step + 1)) AS l FROM r)

-- read at the start, in every iteration, and at the end
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT r.step + 1, r.k, tanh(r.val * w.val + w.val) FROM r JOIN w ON r.k = w.k WHERE r.step < 4),
loss AS (SELECT SUM(r.val * r.val * w.val) AS l FROM r JOIN w ON r.k = w.k)

-- a field with neighbours in a table
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT * FROM (
        WITH n AS (SELECT r.step, s.k,
                          SUM(r.val) FILTER (WHERE s.role = 'ahead') AS a, SUM(r.val) FILTER (WHERE s.role = 'behind') AS b,
                          SUM(r.val) FILTER (WHERE s.role = 'twice') AS t, SUM(r.val) FILTER (WHERE s.role = 'here') AS x
                   FROM r JOIN stencil s ON s.neighbour = r.k WHERE r.step < 4 GROUP BY r.step, s.k)
        SELECT step + 1, k, x + 0.05 * ((a - t) * b - x + 8) FROM n) q),
loss AS (SELECT SUM(power(r.val - y.val, 2)) AS l FROM r JOIN y ON r.step = y.step AND r.k = y.k)

-- rows that stop by their own values
r AS (SELECT k, val FROM w UNION ALL SELECT k, val * 1.5 + 0.1 FROM r WHERE abs(val) < 2),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- the matrix that every step multiplies by
h AS (SELECT k AS i, CAST(k + 1 AS DOUBLE) AS v FROM w0),
r AS (SELECT 0 AS step, i, v / 5 AS v FROM h
      UNION ALL SELECT * FROM (
        SELECT r.step + 1, (r.i + w.k) % 5 AS i, tanh(SUM(w.val * r.v)) FROM r CROSS JOIN w WHERE r.step < 3
        GROUP BY r.step + 1, (r.i + w.k) % 5) q),
loss AS (SELECT SUM(v * v) AS l FROM r WHERE step = 3)

-- a window in every step
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT * FROM (
        SELECT step + 1, k, exp(val) / SUM(exp(val)) OVER (PARTITION BY step) + 0.1 * val FROM r WHERE step < 3) q),
loss AS (SELECT SUM(val * val * k) AS l FROM r WHERE step = 3)

-- cells that are NULL
r AS (SELECT 0 AS step, k, CASE WHEN k = 2 THEN NULL ELSE val END AS val FROM w
      UNION ALL SELECT step + 1, k, CASE WHEN k = 3 AND step = 1 THEN NULL ELSE val * val + 0.1 END FROM r WHERE step < 3),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- one recursion after the other
r AS (SELECT 0 AS step, k, val FROM w UNION ALL SELECT step + 1, k, sin(val) FROM r WHERE step < 3),
s AS (SELECT 0 AS step, k, val * val AS val FROM r WHERE step = 3
      UNION ALL SELECT step + 1, k, cos(val) * val FROM s WHERE step < 2),
loss AS (SELECT SUM(s.val * r.val) AS l FROM s JOIN r ON s.k = r.k AND s.step = r.step)

-- a subquery of what all iterations read
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT step + 1, k, val * (SELECT AVG(val) FROM w) + 0.1 FROM r WHERE step < 3),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- what is computed from the variable before
h AS (SELECT k, tanh(val) AS v FROM w),
g AS (SELECT k % 2 AS k, SUM(v) AS v FROM h GROUP BY k % 2),
r AS (SELECT 0 AS step, k, v FROM h
      UNION ALL SELECT r.step + 1, r.k, r.v * g.v + 0.3 FROM r JOIN g ON r.k % 2 = g.k WHERE r.step < 3),
loss AS (SELECT SUM(r.v * r.v * h.v) AS l FROM r JOIN h ON r.k = h.k)

-- a join that extends rows
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT r.step + 1, r.k, r.val * 0.9 + coalesce(p.val * r.val, 0.2)
      FROM r LEFT JOIN (SELECT k, val FROM w WHERE k > 2) p ON p.k = r.k WHERE r.step < 3),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- several columns that vary, of which the first rows have one
r AS (SELECT 0 AS step, k, val AS x, CAST(0 AS DOUBLE) AS v FROM w
      UNION ALL SELECT step + 1, k, x + 0.1 * v, v - 0.1 * sin(x) FROM r WHERE step < 5),
loss AS (SELECT SUM(v * v + 0.5 * x) AS l FROM r WHERE step = 5)

-- a tree that is walked down
r AS (SELECT 0 AS depth, k AS node, val FROM w WHERE k = 4
      UNION ALL SELECT r.depth + 1, w.k, r.val * w.val + 1 FROM r JOIN w ON w.k < r.node),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- the rows before read twice
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT * FROM (
        WITH b AS (SELECT * FROM r WHERE step < 3)
        SELECT a.step + 1, a.k, a.val - 0.1 * SUM(b.val * CAST(b.k AS DOUBLE)) FROM r a JOIN stencil s ON s.k = a.k AND a.step < 3
        JOIN (SELECT 1 AS one) o ON o.one = 1 JOIN (SELECT k, val FROM w) b ON b.k = s.neighbour GROUP BY a.step, a.k, a.val) q),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- gradients in every iteration
r AS (SELECT 0 AS step, k, CAST(k AS DOUBLE) / 3 AS val FROM w0
      UNION ALL SELECT * FROM (
        WITH inner_loss AS (SELECT SUM(power(r.val * w.val - 1, 2)) AS l FROM r JOIN w ON r.k = w.k)
        SELECT step + 1, k, val - 0.1 * grad((SELECT l FROM inner_loss), val) FROM r WHERE step < 3) q),
loss AS (SELECT SUM(val * val) AS l FROM r WHERE step = 3)

-- a recursion in every iteration
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT * FROM (
        WITH RECURSIVE s AS (SELECT 0 AS inner_step, step, k, val FROM r WHERE step < 2
                             UNION ALL SELECT inner_step + 1, s.step, s.k, sin(s.val) + 0.1 * w.val FROM s JOIN w ON s.k = w.k WHERE inner_step < 2)
        SELECT step + 1, k, val * val FROM s WHERE inner_step = 2) q),
loss AS (SELECT SUM(val * val) AS l FROM r)

-- minimum and maximum
r AS (SELECT 0 AS step, k, val FROM w
      UNION ALL SELECT * FROM (
        SELECT step + 1, k, val * 0.5 + MAX(val) OVER (PARTITION BY step) * 0.3 FROM r WHERE step < 3) q),
loss AS (SELECT MAX(val) + MIN(val) AS l FROM r WHERE step = 3)

-- no iteration
r AS (SELECT 0 AS step, k, val FROM w UNION ALL SELECT step + 1, k, val FROM r WHERE step > 5),
loss AS (SELECT SUM(val * val) AS l FROM r)
-- two recursive queries whose iterations read the variable
a AS (SELECT 0 AS step, CAST(1 AS DOUBLE) AS v UNION ALL SELECT step + 1, v * (1 + w.val) FROM a CROSS JOIN w WHERE step < 2 AND k < 3),
b AS (SELECT 0 AS step, CAST(2 AS DOUBLE) AS v UNION ALL SELECT step + 1, v * sin(w.val) FROM b CROSS JOIN w WHERE step < 2 AND k > 1),
loss AS (SELECT la.l * lb.l AS l FROM (SELECT SUM(v) AS l FROM a) la CROSS JOIN (SELECT SUM(v) AS l FROM b) lb)
