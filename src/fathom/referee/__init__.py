"""Fair timing of two sides, and whether they still compute the same."""
