"""Statements that are planned once and run as one step, again and again."""
