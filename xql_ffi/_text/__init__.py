"""Derivatives as plain SQL: tables and their types, the library that writes texts, and the SQL of other hosts."""
