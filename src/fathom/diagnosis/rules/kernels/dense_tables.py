"""Embeddings with dense gradients although a step looks up only a few rows."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import mended, ms_of
from fathom.diagnosis.rules.rule import Candidate, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Signals, Tables

FEW = 0.1  # of the rows: with more, sorting and gathering them costs about as much as it saves
SPARSE = 4.0  # work on a looked-up row over that of a dense one: sort, sum, gather and scatter
LEAST = 0.02  # of the step: SparseAdam itself launches a dozen small kernels


@rule("kernels-dense-embedding-gradient")
def dense_tables(signals: Signals) -> Outcomes:
    """Find dense gradients of large tables, with one rank only: NCCL cannot reduce sparse gradients."""
    every: list[Tables] = signals["kernels.tables"]
    tables = [table for table in every if table.touched <= FEW and table.works]
    if not tables:
        return
    if any(row.entry == Entry.COMMUNICATION for row in signals["step.ledger"]):
        yield NotAnalysed("DistributedDataParallel cannot reduce sparse gradients over NCCL")
        return
    ms = ms_of(tables)
    if ms >= LEAST * signals["step.timeline_ms"]:
        yield _candidate(signals, tables, ms)


def _candidate(signals: Signals, tables: list[Tables], ms: float) -> Candidate:
    left = sum(table.ms * min(SPARSE * table.touched, 1.0) for table in tables) / ms
    works = [work for table in tables for work in table.works]
    return mended(
        signals,
        (works, left),
        place=("family",),
        evidence=[
            *map(_evidence, tables),
            Evidence("time spent zeroing and updating all rows", ms, "ms per step"),
        ],
        doubt=0.3,
        confidence=0.8,
        check="nn.Embedding(rows, width, sparse=True) with SparseAdam for it, and time the step",
        source=tables[0].source,
        module=tables[0].module,
    )


def _evidence(table: Tables) -> Evidence:
    tables = "a table" if table.parameters == 1 else f"{table.parameters} tables"
    says = f"rows looked up (at most) in {tables} of {table.rows:,} x {table.width}"
    return Evidence(says, 100 * table.touched, "%")
