"""Algorithmic FLOPs and compulsory bytes of ops, from their shapes, and of kernels, from their ops."""

from fathom.analysis.work.annotate import annotate, op_work
from fathom.analysis.work.families import family_work, kernel_ops

__all__ = ["annotate", "family_work", "kernel_ops", "op_work"]
