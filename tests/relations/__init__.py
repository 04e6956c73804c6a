"""Random plans: derivatives of columns by columns far below them, against differences of the query itself.

The parts, in the order in which they build on each other:

- `choices`: random choices that can be replayed, so that a failing plan can be made smaller
- `columns`: what a column is computed from, and where it starts
- `tables`: the tables at the bottom
- `queries`: queries as trees, and how they are written as SQL, with some of their columns moved by a small amount
- `expressions`: random expressions over the columns in scope
- `scopes`: what random queries are made of: sources, FROM, SELECT lists
- `nodes`: random queries over others
- `statements`: the call at the top of a random query
- `support.differences`: derivatives by extrapolated central differences
- `verdict`: what a session got wrong
"""
