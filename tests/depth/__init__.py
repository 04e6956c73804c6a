"""Models of many layers: CTEs that several others read."""
