"""Models that have names, each as CTEs and in JAX: a file for each, with a function that makes it by its depth."""
