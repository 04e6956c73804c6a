"""Statements of other engines: sqlglot reads and writes them, what differs from DataFusion is in a table for each."""
