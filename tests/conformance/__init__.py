"""The conformance suite: random expressions, differentiated by a delivery path and by JAX.

The parts, in the order in which they build on each other:

- `values` and `language`: what each piece of SQL means, as a function of JAX
- `expressions`: random well-typed expressions made of it, and how to make one smaller
- `points`: where they are evaluated
- `derivatives`: their derivatives by JAX
- `arithmetic`: what JAX traces, evaluated with rounding errors and without
- `cases`: an expression with its calls of grad, jvp and vjp, and the values that these must have
- `paths`: ways of evaluating calls; a new one is one class
- `verdict`: what a path got wrong
- `exact`, `exact_verdict`: the same by derivatives in 50 digits, for a part of the expressions
"""
