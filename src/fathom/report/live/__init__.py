"""A running program on a page, on lines, and as metrics."""
