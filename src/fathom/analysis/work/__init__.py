"""Compute algorithmic FLOPs and compulsory bytes: of ops from their shapes, of kernels from their ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.work.annotate import SIGNATURE, annotate_ops, op_work, works_of
    from fathom.analysis.work.attention import ATTENTION_LAYOUTS, AttentionLayout
    from fathom.analysis.work.call import Call, UnknownWorkError, parse_call
    from fathom.analysis.work.classes import class_of
    from fathom.analysis.work.dtypes import DTYPES, SIZE
    from fathom.analysis.work.links import LINKED, Links, chosen, connect, launch_rows
    from fathom.analysis.work.recompute import ONLY_FORWARD, regions
    from fathom.analysis.work.tree import NONE, below, rows_of, with_own_time

__all__, __getattr__ = exports(__name__)
