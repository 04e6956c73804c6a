"""Gradients by row of random values, against forward mode along a direction and against differences cell by cell.

- `tables`: the tables at the bottom
- `plans`: queries as trees, and how they are written: as they are, with one cell moved, or with one reference to a
  relation moved along a direction by a number that is carried up to the value
- `generation`: random values and the relations by which they are differentiated
- `verdict`: what a session got wrong

And those of models that people fit, train or simulate, against differences of the loss:

- `models`: relations that are given, queries that are named, and a loss
- `forms`: the ways in which a relation can be given
- `model_statements`: a model as a statement with calls
- `model_verdict`: what a session got wrong
"""
