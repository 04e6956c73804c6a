"""Statements over the tables of `cases` in what is DataFusion's own, or easily read wrong: names, types, places."""

Q = "(SELECT id, n, s, x, y, x * y AS v FROM t) AS q"

STATEMENTS = {
    # Names.
    "the name of a call in a subquery": 'SELECT "grad(t.x * t.x,t.x)" AS d FROM (SELECT grad(x * x, x) FROM t)',
    "the name of a call through relations": f"""
        SELECT "grad(q.v * q.v,q.x)" + 1 AS d FROM (SELECT grad(v * v, x) FROM {Q}) AS r""",
    "a column called grad by itself": "SELECT grad(grad * x, grad) AS grad FROM u",
    "an alias that is another column": f"SELECT x AS y, y AS x, grad(v, x) AS d FROM {Q} ORDER BY x, y",
    "an alias that is the variable": f"SELECT id, grad(v * y, x) AS x FROM {Q} ORDER BY x",
    "a CTE called as a table": "WITH t AS (SELECT id, x, x * 2 AS v FROM t) SELECT id, grad(v * v, x) AS d FROM t",
    "CTEs of one name in one another": """
        WITH a AS (WITH a AS (SELECT id, x, x * x AS v FROM t) SELECT id, x, v * v AS v FROM a)
        SELECT id, grad(v, x) AS d FROM a""",
    "a CTE read by two": """
        WITH a AS (SELECT id, x, x * x AS v FROM t), b AS (SELECT a.id, a.x, a.v * a.v AS v FROM a),
             c AS (SELECT b.id, b.x, b.v + a.v AS v FROM a JOIN b ON a.id = b.id)
        SELECT id, grad(v, x) AS d FROM c""",
    "a view behind a CTE of its name": """
        WITH predicted AS (SELECT w, pred * 2 AS pred FROM predicted) SELECT grad(pred, w) AS d FROM predicted""",
    "a view beside itself": """
        SELECT a.x, grad(a.pred * b.pred, a.w) AS d FROM predicted AS a JOIN predicted AS b ON a.x = b.x""",
    "keywords in quotes": """
        WITH "select" AS (SELECT id AS "from", x AS "where", x * x AS "group" FROM t)
        SELECT "from", grad("group", "where") AS "order" FROM "select" """,
    "quotes in names": """
        WITH q AS (SELECT id AS "a b", x AS "ü", x * y AS "a""b" FROM t)
        SELECT "a b", grad("a""b", "ü") AS "é'" FROM q""",
    "names that differ in case": f"""
        SELECT id, grad(v * "V", x) AS d FROM (SELECT *, x * 3 AS "V" FROM {Q}) AS r""",
    "names that the derivative would give": """
        SELECT id, grad(dv_dx * v * v_2, x) AS d
        FROM (SELECT id, x, x * y AS v, x + y AS dv_dx, x - y AS v_2 FROM t) AS q""",
    "CTEs called as those of a gradient by row": """
        WITH rows AS (SELECT id, x, x * x AS row FROM t), groups AS (SELECT SUM(row) AS sum FROM rows),
             cotangents AS (SELECT sum * sum AS cotangent FROM groups)
        SELECT id, grad((SELECT cotangent FROM cotangents), x) AS d FROM t""",
    "a table named in full": "SELECT id, grad(public.t.x * t.x, t.x) AS d FROM datafusion.public.t",
    # Places.
    "comments between the parts of a call": """
        SELECT id, grad /* a */ ( /* b */ x * x -- c
            , /* d */ x ) /* e */ AS d FROM t""",
    "calls in strings": """
        SELECT id, 'grad(x, x)' AS l, grad(CASE WHEN s = 'grad(x,x)' THEN x ELSE x * y END, x) AS d FROM t""",
    "strings with quotes and parentheses": f"""
        SELECT id, '''(' || s || '"' AS l, grad(v, x) AS d FROM {Q} WHERE s <> 'it''s)'""",
    "order by a call": f"SELECT id, grad(v, x) AS d FROM {Q} ORDER BY grad(v * x, x) DESC NULLS LAST, id LIMIT 3",
    "having a call": f"SELECT s, SUM(grad(v, x)) AS d FROM {Q} GROUP BY s HAVING SUM(grad(v, x)) > 1",
    "group by an alias": f"SELECT s AS k, MIN(grad(v, x)) AS d FROM {Q} GROUP BY k",
    "group by a place": f"SELECT s, MIN(grad(v, x)) AS d FROM {Q} GROUP BY 1 ORDER BY 2",
    "using through relations": f"SELECT id, grad(v * u.x, q.x) AS d FROM {Q} JOIN u USING (id)",
    "a wildcard with using": f"SELECT *, grad(v * u.x, q.x) AS d FROM {Q} JOIN u USING (id)",
    "a natural join": f"SELECT id, grad(v, x) AS d FROM {Q} NATURAL JOIN (SELECT id FROM u) AS r",
    "a correlated condition": f"""
        SELECT id, grad(v, x) AS d FROM {Q} WHERE EXISTS (SELECT 1 FROM u WHERE u.id = q.id AND u.x < q.v)""",
    "a correlated value": f"SELECT id, grad(v, x) AS d FROM {Q} WHERE v > (SELECT AVG(u.x) FROM u WHERE u.id = q.id)",
    "a set operation": f"SELECT grad(v, x) AS d FROM {Q} EXCEPT SELECT y FROM t WHERE y > 2",
    "a cube": f"SELECT s, n, SUM(grad(v, x)) AS d FROM {Q} GROUP BY CUBE (s, n)",
    "grouping sets that are the same": f"""
        SELECT s, n, SUM(grad(v, x)) AS d FROM {Q} GROUP BY GROUPING SETS ((s), (s, n), (n, s), (s), (), (s))""",
    "grouping sets that are the same, of an aggregate": """
        SELECT x, grad(SUM(a), x) AS d FROM (SELECT x, x * x AS a FROM u) AS q GROUP BY GROUPING SETS ((x), (), ())""",
    "no rows": "SELECT grad(v * v, x) AS d FROM (SELECT x, x * x AS v FROM (SELECT 3.0 AS x WHERE false) AS q) AS r",
    "a window beside": f"""
        SELECT id, grad(v, x) AS d, ntile(2) OVER (ORDER BY id) AS h,
            first_value(id) IGNORE NULLS OVER (PARTITION BY s ORDER BY id DESC) AS f FROM {Q}""",
    "calls in a window": f"""
        SELECT id, SUM(grad(v, x)) OVER (PARTITION BY s ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS d
        FROM {Q}""",
    "all operators": f"""
        SELECT id, jvp(v * y, x, 1.0, y, x) AS d, vjp(v * v, x, y) AS e, grad(grad(v * v, x), x) AS f FROM {Q}""",
    # Types.
    "numbers of all types": f"""
        SELECT id, grad(v, x) AS d, n::smallint AS a, abs(n)::bigint unsigned AS b, n::float AS c,
            n::decimal(10, 2) AS e, 1e300 AS f, -0.0 AS g, 123456789012 AS h, '-inf'::double AS i FROM {Q}""",
    "bytes": f"SELECT id, grad(v, x) AS d, s::bytea AS a, X'1F' AS b, 0x1F AS c FROM {Q}",
    "types without a name": f"""
        SELECT id, grad(v, x) AS d, arrow_cast(s, 'LargeUtf8') AS a FROM {Q}
        WHERE arrow_cast(s, 'Dictionary(Int32, Utf8)') = 'a'""",
    "times": f"""
        SELECT id, grad(v, x) AS d, DATE '2020-01-02' AS a, TIMESTAMP '2020-01-02 03:04:05.678' AS b,
            INTERVAL '1 month 2 days' AS c, TIME '10:11:12' AS e FROM {Q}""",
    "what is joined to a text": f"SELECT id, grad(v, x) AS d, s || id AS a, id || '-' || n AS b FROM {Q}",
    "lists and structs": f"""
        SELECT id, grad(v, x) AS d, make_array(n, 2)[1] AS a, named_struct('a', n)['a'] AS b, [x, 1.0] AS c FROM {Q}""",
    "operators that bind": f"""
        SELECT id, grad(v, x) AS d, 7 - (3 - n) AS a, 12 / (6 / n) AS b, - - n AS c, (n = 1) = (n = 2) AS e,
            NOT (n = 1 AND n = 2) AS f, NOT n = 1 AND n = 2 AS g, x IS DISTINCT FROM y AS h FROM {Q}""",
    "patterns": f"""
        SELECT id, grad(v, x) AS d, s LIKE 'a\\_%' ESCAPE '\\' AS a, s NOT LIKE '%''%' AS b, s ~ '^a' AS c FROM {Q}""",
    # Rows.
    "a table function": f"SELECT q.id, g.value, grad(v * g.value, x) AS d FROM {Q}, generate_series(1, 3) AS g",
    "a table function with a step": f"SELECT r.i, grad(v * r.i, x) AS d FROM {Q} CROSS JOIN range(0, 4, 2) AS r(i)",
    "unnest beside": f"SELECT id, grad(v, x) AS d, unnest(make_array(1, 2)) AS e FROM {Q}",
    "unnest below": """
        SELECT id, grad(v * e, x) AS d
        FROM (SELECT id, x, x * y AS v, unnest(make_array(1.0, 2.5)) AS e FROM t) AS q""",
    "lateral": f"""
        SELECT q.id, grad(v * l.m, q.x) AS d FROM {Q}
        LEFT JOIN LATERAL (SELECT SUM(u.x) AS m FROM u WHERE u.id = q.id) AS l ON true""",
    "columns that only the recursion reads": """
        WITH RECURSIVE r AS (
            SELECT 0 AS step, x, x AS a FROM u
            UNION ALL
            SELECT step + 1, x - 0.1 * grad(x * x * a, x), a FROM r WHERE step < 3)
        SELECT step, x FROM r""",
    "columns that only the recursion reads, through it": """
        WITH RECURSIVE r AS (
            SELECT 0 AS step, x AS start, x, x AS a FROM u
            UNION ALL
            SELECT step + 1, start, x - 0.1 * x * x * a, a FROM r WHERE step < 3)
        SELECT grad(x, start) AS d FROM r WHERE step = 2""",
    "by row, a group key": "SELECT x, grad((SELECT SUM(x * x) FROM u), x) AS d, COUNT(*) AS c FROM u GROUP BY x",
    "by row, distinct rows": """
        SELECT DISTINCT x, grad((SELECT SUM(x * x) FROM t), x) AS d FROM (SELECT DISTINCT x FROM t) AS t""",
    "by row, rows of a union": """
        SELECT x, grad((SELECT SUM(x * x) FROM t), x) AS d FROM (SELECT x FROM t UNION SELECT x FROM u) AS t""",
    "queries in one another": "WITH c0 AS (SELECT id, x, x * y AS v FROM t)"
    + "".join(f", c{n} AS (SELECT id, x, sin(v) * x - v AS v FROM c{n - 1})" for n in range(1, 40))
    + " SELECT id, grad(v, x) AS d FROM c39",
}
