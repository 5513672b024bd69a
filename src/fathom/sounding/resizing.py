"""Tolerances for steps whose inputs may have other sizes than those of the steps recorded with shapes."""

RESIZED = 0.05  # share of a step's kernels with another launch shape: its inputs have other sizes
SCATTER, SCATTER_NS = 0.15, 1000  # by which durations of work of one size differ
