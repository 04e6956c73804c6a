"""Tables, and statements with derivatives over them whose text is run on the stock module."""

from __future__ import annotations

from typing import Any

TABLES: dict[str, dict[str, list[Any]]] = {
    "t": {
        "id": [1, 2, 3, 4],
        "x": [0.5, 1.5, None, -2.0],
        "y": [1.0, 2.0, 3.0, 0.25],
        "n": [2, 3, 1, -1],
        "s": ["a", "b", None, "a"],
    },
    "u": {"id": [1, 2, 3], "x": [0.75, -0.5, 2.0], "grad": [1.0, 2.0, 3.0]},
    "d": {"x": [0.5, 1.5, 2.5], "y": [1.0, 2.0, 2.5]},
    "p": {"w": [0.7], "b": [0.2]},
    "inputs": {"sample": [0, 0, 1, 1, 2, 2], "inp": [0, 1, 0, 1, 0, 1], "val": [0.1, 0.9, 0.4, -0.3, 0.8, 0.2]},
    "w": {"inp": [0, 0, 1, 1], "out": [0, 1, 0, 1], "val": [0.3, -0.2, 0.5, 0.7]},
    "wanted": {"sample": [0, 0, 1, 1, 2, 2], "out": [0, 1, 0, 1, 0, 1], "val": [0.2, 0.1, 0.5, 0.6, 0.3, 0.9]},
}

VIEWS = {
    "predicted": "SELECT d.x, d.y, p.w, p.w * d.x + p.b AS pred FROM d CROSS JOIN p",
    "errors": "SELECT w, power(pred - y, 2) AS e FROM predicted",
}

NETWORK = """
    WITH h AS (SELECT i.sample, w.out, tanh(SUM(i.val * w.val)) AS val
               FROM inputs i JOIN w ON i.inp = w.inp GROUP BY i.sample, w.out),
         loss AS (SELECT AVG(power(h.val - o.val, 2)) AS l
                  FROM h JOIN wanted o ON h.sample = o.sample AND h.out = o.out)
"""

STATEMENTS = {
    # In one node.
    "both tables in scope": "SELECT t.id, grad(t.x * u.x, t.x) AS d FROM t JOIN u ON t.id = u.id",
    "using": "SELECT id, grad(t.x * u.x, u.x) AS d FROM t JOIN u USING (id)",
    "case": "SELECT id, grad(CASE WHEN x > 0 THEN x * x ELSE y * x END, x) AS d FROM t",
    "coalesce": "SELECT id, grad(coalesce(x, y) * y, y) AS d FROM t",
    "atan2": "SELECT id, grad(atan2(y, x), x) AS d, grad(atan2(y, x), y) AS e FROM t",
    "log to a base": "SELECT id, grad(log(3, y), y) AS d, grad(log(y, 3.0), y) AS e FROM t WHERE y <> 1",
    "power": "SELECT id, grad(power(y, x), y) AS d, grad(power(y, x), x) AS e, grad(power(x, n), x) AS f FROM t",
    "power of zero": "SELECT id, grad(power(y - y, abs(n)), y) AS d FROM t",
    "integers": "SELECT id, grad(x * (n / 2) + n % 2 * x, x) AS d FROM t",
    "null": "SELECT id, grad(x * NULL, x) AS d, grad(x + y, x) AS e FROM t",
    "nan": "SELECT id, grad(x * CAST('NaN' AS DOUBLE) + x * CAST('inf' AS DOUBLE), x) AS d FROM t",
    "sums and differences": "SELECT id, x - grad(x * x - y * x, x) - 1 AS d, y / grad(x * y, y) * 2 AS e FROM t",
    "signs": "SELECT id, - grad(x * x + 3 * x, x) AS d, 2 - -grad(-x * y, x) AS e FROM t",
    "order of a window": (
        "SELECT id, rank() OVER (ORDER BY grad(y * y, y)) AS r, lag(y) OVER (ORDER BY grad(exp(y), y), id) AS l FROM t"
    ),
    "order of an aggregate": "SELECT first_value(id ORDER BY grad(y * y * y, y) DESC) AS f FROM t",
    "condition of an aggregate": (
        "SELECT s, sum(y) FILTER (WHERE grad(y * y, y) > 1) AS f FROM t GROUP BY s "
        "HAVING count(y) FILTER (WHERE grad(y * y, y) > 1) > 0"
    ),
    "qualify": "SELECT id FROM t QUALIFY rank() OVER (ORDER BY grad(y * y * y, y)) = 1",
    "types": "SELECT id, grad(CAST(x AS REAL) * CAST(y AS REAL), x) AS d FROM t",
    "directions": "SELECT id, jvp(x * y, x, y, y, x) AS d, vjp(x * x, x, y) AS e FROM t",
    "orders": "SELECT id, grad(grad(x * x * x, x), x) AS d FROM t",
    "stops": "SELECT id, grad(stop_gradient(x) * x, x) AS d, stop_gradient(y + 1) * 2 AS e FROM t",
    "of an aggregate": "SELECT y, grad(y * y * SUM(n), y) AS d FROM t GROUP BY y HAVING grad(y * y, y) > 1",
    "in an aggregate": "SELECT s, SUM(grad(x * x * y, x)) AS d FROM t GROUP BY s",
    "group by": "SELECT grad(n * x, x) AS d, COUNT(*) AS c FROM t GROUP BY grad(n * x, x)",
    "order by an alias": "SELECT id, grad(x * x, x) AS d FROM t ORDER BY d DESC",
    "order by": "SELECT id FROM t ORDER BY grad(x * x, x)",
    "beside a wildcard": "SELECT *, grad(x * x, x) FROM t",
    "named by the call": "SELECT grad(x * x, x), 1 + grad(y * x, x) FROM t",
    "correlated": "SELECT id, (SELECT SUM(grad(u.x * u.x, u.x)) FROM u WHERE u.id = t.id) AS d FROM t",
    "a union": "SELECT grad(x * x, x) AS d FROM t UNION ALL SELECT grad(x * 3, x) FROM u",
    "in a recursive term": """
        WITH RECURSIVE newton AS (
            SELECT 0 AS step, CAST(1 AS DOUBLE) AS x
            UNION ALL
            SELECT step + 1, x - (x * x - 2) / grad(x * x - 2, x) FROM newton WHERE step < 5)
        SELECT step, x FROM newton""",
    # Through relations.
    "a cte": """
        WITH m AS (SELECT y, w, w * x + b AS pred FROM d CROSS JOIN p)
        SELECT AVG(grad(power(pred - y, 2), w)) AS d FROM m""",
    "a derived table": "SELECT id, grad(a * a, x) AS d FROM (SELECT id, x, x * y AS a FROM t) AS q",
    "a view": "SELECT AVG(grad(power(pred - y, 2), w)) AS d FROM predicted",
    "a view over a view": "SELECT grad(SUM(e), w) AS d FROM errors GROUP BY w",
    "by a group": "SELECT w, grad(AVG(power(w * x - y, 2)), w) AS d FROM d CROSS JOIN p GROUP BY w",
    "grouping sets": """
        SELECT s, n % 2 AS odd, grouping(s, n % 2) AS level, SUM(grad(a * a, y)) AS d
        FROM (SELECT id, s, n, y, x * y AS a FROM t) AS q GROUP BY GROUPING SETS ((s, n % 2), (n % 2), ())""",
    "a rollup": """
        SELECT w, grouping(w) AS level, grad(AVG(power(w * x - y, 2)), w) AS d
        FROM d CROSS JOIN p GROUP BY ROLLUP (w)""",
    "statistics": """
        SELECT w, grad(stddev(w * x), w) AS d, grad(covar_pop(w * x, y), w) AS e
        FROM d CROSS JOIN p GROUP BY w""",
    "least and greatest": "SELECT w, grad(MAX(w * x) - MIN(w * y), w) AS d FROM d CROSS JOIN p GROUP BY w",
    "a window": "SELECT id, grad(AVG(x * x) OVER (PARTITION BY s), x) AS d FROM t",
    "a window before": "SELECT id, jvp(lag(x * x, 1, 0.5) OVER (ORDER BY id), x, 1) AS d FROM t",
    "a running sum": """
        SELECT id, jvp(SUM(x * y) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), y, x) AS d
        FROM t""",
    "a softmax": """
        WITH m AS (SELECT x, x - MAX(x) OVER () AS z FROM u), s AS (SELECT x, exp(z) / SUM(exp(z)) OVER () AS q FROM m)
        SELECT x, grad(q, x) AS d FROM s""",
    "an outer join": """
        WITH m AS (SELECT u.id, t.y * t.y AS a, t.y FROM u LEFT JOIN t ON u.id = t.id AND t.n > 1)
        SELECT id, grad(a * a, y) AS d FROM m""",
    "a semi join": """
        SELECT id, grad(a * a, y) AS d
        FROM (SELECT id, y, y * y AS a FROM t WHERE id IN (SELECT id FROM u)) AS q""",
    "an anti join": """
        SELECT id, grad(a, y) AS d FROM (
            SELECT id, y, y * y AS a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id)) AS q""",
    "distinct": "SELECT grad(a, y) AS d FROM (SELECT DISTINCT y, y * y AS a FROM t) AS q",
    "the first of each": """
        SELECT id, grad(a, y) AS d FROM (SELECT DISTINCT ON (s) id, y, y * y AS a FROM t ORDER BY s, id) AS q""",
    "a limit": """
        SELECT id, grad(a, y) AS d
        FROM (SELECT id, y, y * y AS a FROM t ORDER BY id DESC LIMIT 2 OFFSET 1) AS q""",
    "a union below": """
        SELECT grad(a * a, x) AS d
        FROM (SELECT x, x * y AS a FROM t UNION ALL SELECT x, x * x FROM u) AS q""",
    "values": """
        SELECT grad(v * v * b, a) AS d
        FROM (SELECT a, b, a * b AS v FROM (VALUES (1.0, 2), (-0.5, NULL)) AS t(a, b)) AS q""",
    "a subquery in the condition": """
        SELECT id, grad(a * a, y) AS d FROM (SELECT id, y, y * y AS a FROM t) AS q
        WHERE a > (SELECT AVG(x) FROM u) AND EXISTS (SELECT 1 FROM u WHERE u.id = q.id)""",
    "iterations": """
        WITH RECURSIVE newton AS (
            SELECT 0 AS step, x AS a, CAST(1 AS DOUBLE) AS z FROM u
            UNION ALL
            SELECT step + 1, a, z - (z * z * z + z - a) / grad(z * z * z + z - a, z) FROM newton WHERE step < 8)
        SELECT grad(z, a) AS d FROM newton WHERE step = 8""",
    "a text of several lines": """
        SELECT id, grad(CASE WHEN l = 'a
  b' THEN a ELSE 2 * a END, x) AS d FROM (SELECT id, x, x * y AS a, s || '
  b' AS l FROM t) AS q""",
    "unnest": "SELECT unnest(make_array(grad(x * y, x), grad(x * y, y))) AS d FROM t",
    "a statement of many names": """
        WITH "M" AS (SELECT id AS "Id", x AS "X", x * y AS "select" FROM t)
        SELECT "Id", grad("select" * "select", "X") AS "From" FROM "M" """,
    "operators on bits": """
        SELECT (n ^ 3) + 1 AS e, n & 1 AS a, n | 4 AS o, n << 2 AS l, grad(q, x) AS d
        FROM (SELECT n, x, x * x AS q FROM t) AS q""",
    "constants of a side that a join extends": """
        SELECT q.id, n, b, grad(q.p * COALESCE(n, 5), q.x) AS d FROM (SELECT id, x, x * x AS p FROM t) AS q
        LEFT JOIN (SELECT id, 1.0 AS n FROM u WHERE id > 1) AS o ON q.id = o.id
        FULL JOIN (SELECT id, 'b' AS b FROM u WHERE id < 2) AS r ON r.id = q.id""",
    # A number in ORDER BY would be the place of a column.
    "order by constants": """
        SELECT id, 1 AS s, grad(f, x) AS d FROM (SELECT id, x, 2 AS n, 'b' AS b, x * y AS f FROM t) AS q
        ORDER BY s, n, b, id DESC LIMIT 2""",
    "group by constants": """
        SELECT n, b, grad(SUM(h), y) AS d FROM (SELECT y, 2 AS n, 'b' AS b, x * y AS h FROM t) AS q GROUP BY n, b, y""",
    "the first by a constant": """
        SELECT DISTINCT ON (n) n, id, grad(h, x) AS d FROM (SELECT id, x, 2 AS n, x * x AS h FROM u) AS q
        ORDER BY n, id DESC""",
    "ordered again": """
        SELECT id, y, grad(f, x) AS d FROM (SELECT id, y, x, x * y AS f FROM t ORDER BY id LIMIT 2 OFFSET 1) AS q
        ORDER BY id""",
    "recursion over a nested query": """
        WITH RECURSIVE b AS (SELECT * FROM p WHERE w > -9), r AS (SELECT w, 0 AS n, w AS f FROM b
        UNION ALL SELECT w, n + 1, f * w FROM r WHERE n < 2) SELECT f, grad(f, w) AS d FROM r WHERE n = 2""",
    # By row.
    "by row, a constant derivative": "SELECT id, grad((SELECT SUM(x) FROM u WHERE x > 0.6), x) AS d FROM u",
    "by row, a constant beside": """
        SELECT id, grad((SELECT SUM(u.x * COALESCE(n, 7)) FROM u
        LEFT JOIN (SELECT id, 1.0 AS n FROM t WHERE id > 1) AS o ON u.id = o.id), x) AS d FROM u""",
    "by row": f"{NETWORK} SELECT inp, out, val - 0.1 * grad((SELECT l FROM loss), val) AS val FROM w",
    "by the rows of two relations": f"""
        {NETWORK} SELECT w.inp, out, i.sample, grad((SELECT l FROM loss), w.val) AS d,
            grad((SELECT l FROM loss), i.val) AS e
        FROM w JOIN inputs i ON i.inp = w.inp""",
    "by row, a name in full": "SELECT inp, out, grad((SELECT SUM(sin(val)) FROM w), w.val) AS d FROM public.w",
    "by row, the total": "SELECT id, grad(x - (SELECT AVG(x) FROM u), x) AS d FROM u",
    "by row, rows that are numbered": """
        WITH h AS (SELECT inp, tanh(SUM(val)) AS v FROM w GROUP BY inp),
             s AS (SELECT v, row_number() OVER (ORDER BY inp) AS r FROM h)
        SELECT inp, out, grad((SELECT SUM(v * r) FROM s), val) AS d FROM w""",
    "by row, a maximum": "SELECT id, grad((SELECT MAX(x) / SUM(x) FROM u), x) AS d FROM u",
    "by row, the first rows": """
        SELECT id, grad((SELECT SUM(x * x)
        FROM (SELECT x FROM u ORDER BY x DESC LIMIT 2) AS q), x) AS d FROM u""",
    "by row, a window": """
        SELECT id, grad((SELECT SUM(q * q)
        FROM (SELECT SUM(x) OVER (ORDER BY id) AS q FROM u) AS r), x) AS d FROM u""",
    "by row, opposite orders": """
        SELECT id, grad((SELECT nth_value(x, 2 ORDER BY id) * first_value(grad ORDER BY id DESC)
        + last_value(x ORDER BY x) FROM u), x) AS d FROM u""",
    "by row, a frame that is not read": """
        SELECT id, grad((SELECT SUM(exp(q)) FROM (SELECT
        lag(x) OVER (ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS q FROM u) AS r), x) AS d FROM u""",
}
