"""Recursive queries that several files of tests watch."""

NEWTON = """
    WITH RECURSIVE newton AS (
        SELECT 0 AS step, 1.0 AS x
        UNION ALL
        SELECT step + 1, x - (x * x - 2) / grad(x * x - 2, x) FROM newton WHERE step < 6)
    SELECT x FROM newton ORDER BY step DESC LIMIT 1
"""
# Without a derivative.
# Reads both columns: DataFusion 54 fails where a recursive query without derivatives has one that nobody reads.
HALVES = """
    WITH RECURSIVE halves AS (
        SELECT 0 AS step, 1.0 AS x UNION ALL SELECT step + 1, x / 2 FROM halves WHERE step < 3)
    SELECT SUM(x) AS total FROM halves WHERE step >= 0
"""
