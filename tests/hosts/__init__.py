"""The same derivatives on every host: the generated suites, run as text on engines that know nothing of them.

The parts, in the order in which they build on each other:

- `host`: what a host is, and what it may answer
- `worker`: a program that runs a stock `datafusion` in an environment of its own
- `stock` and the other hosts: each one engine
- `every`: the hosts by name
- `conformance`, `forward`, `rows`: random expressions, random plans, gradients by row, on one host
- `table`: a program that counts over all of them what runs, what is refused and why
"""
