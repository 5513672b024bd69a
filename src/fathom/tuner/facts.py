"""Facts about a program and its machine that decide which knobs fit: from its sounding."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fathom.analysis.causes import AUTOGRAD
from fathom.analysis.results import Examination
from fathom.sounding import LOADERS, Store

MANY = 4  # cores
CACHING_OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"}
OPTIMIZERS = re.compile(r"Optimizer\.step#(Adam|AdamW|SGD|Adagrad)\.step$")  # those that the act reaches


@dataclass(frozen=True)
class Facts:
    """Words for what holds, like `cuda` or `loader`; the cores and the workers of the program's loaders."""

    words: frozenset[str]
    cores: int
    workers: int = 0
    shares: dict[str, float] = field(default_factory=dict)  # of the step, by category of work
    by_workers: Mapping[int, float] = field(default_factory=dict)  # share of the step that they save
    by_workers_alone: Mapping[int, float] = field(default_factory=dict)  # the same on an idle host

    def meet(self, needs: Iterable[str]) -> bool:
        """Return whether all of `needs` hold."""
        return self.words.issuperset(needs)

    @property
    def worker_counts(self) -> set[int]:
        """The numbers of workers that the knob `loader` tries."""
        return {0, 1, self.workers + 1, max(1, self.cores // 2), self.cores}


def facts_of(store: Store, examination: Examination) -> Facts:
    """Collect the facts about a recorded program."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    loaders = [loader for rank in store.manifest.ranks for loader in rank.facts.get(LOADERS, [])]
    mapped = [loader for loader in loaders if not loader.get("iterable")]
    shares = _shares(examination)
    if not _on_gpu(store):
        shares["optimizer"] = max(shares.get("optimizer", 0.0), _optimizer_share(store))
    words = {*_of_machine(cores), *_of_program(store, examination, shares), *(["loader"] if mapped else [])}
    workers = max((loader.get("workers") or 0 for loader in mapped), default=0)
    return Facts(frozenset(words), cores, workers, shares)


def _shares(examination: Examination) -> dict[str, float]:
    """Return the share of the step by category of work on the first device."""
    device = examination.devices[0] if examination.devices else None
    step_ms = examination.step.basis_ms
    if device is None or not step_ms:
        return {}
    return {category.name: min(1.0, category.ms / step_ms) for category in device.categories}


def _on_gpu(store: Store) -> bool:
    return any(rank.devices for rank in store.manifest.ranks)


def _optimizer_share(store: Store) -> float:
    """Return the share of a profiled step in the optimizer; 0 if unknown, or if it runs the backward pass."""
    rank = store.manifest.ranks[0].rank if store.manifest.ranks else None
    if rank is None:
        return 0.0
    profiled = pl.col("phase") == "timeline"
    ops = store.table("ops", rank).filter(profiled).with_columns(pl.col("name").cast(pl.String))
    calls = ops.filter(pl.col("name").str.contains(OPTIMIZERS.pattern)).select("start_ns", "end_ns").collect()
    starts = ops.filter(pl.col("name").str.starts_with(AUTOGRAD)).select("start_ns").collect()["start_ns"]
    outer = profiled & pl.col("parent").is_null()
    steps = store.table("steps", rank).filter(outer).select(pl.col("end_ns") - pl.col("mark_ns")).collect()
    if (
        calls.is_empty()
        or steps.is_empty()
        or any(starts.is_between(*call).any() for call in calls.iter_rows())
    ):
        return 0.0
    each = float(np.median(calls["end_ns"] - calls["start_ns"])), float(np.median(steps.to_series()))
    return min(1.0, each[0] * len(calls) / (each[1] * len(steps)))


def _of_machine(cores: int) -> Iterable[str]:
    if cores > 1:
        yield "several-cores"
    if cores >= MANY:
        yield "many-cores"
    if platform.libc_ver()[0] == "glibc":
        yield "glibc"
    if shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++"):
        yield "compiler"
    if "bf16" in _processor_flags():
        yield "bf16"


def _processor_flags() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return ""


def _of_program(store: Store, examination: Examination, shares: dict[str, float]) -> Iterable[str]:
    if "torch" in store.manifest.versions:
        yield "torch"
    yield from ("cuda", "bf16") if _on_gpu(store) else ("computes-on-cpu",)
    if len(store.manifest.ranks) > 1:
        yield "several-ranks"
    if not CACHING_OFF & store.manifest.environment.keys():
        yield "memory-cache"
    if examination.step.kind == "train":
        yield "trains"
    names = _ops(store)
    if not names or any(OPTIMIZERS.match(name) for name in names):
        yield "torch-optimizer"
    if shares.get("convolution") or any("conv" in name for name in names):
        yield "convolution"
    if shares.get("attention") or any("attention" in name for name in names):
        yield "attention"


def _ops(store: Store) -> list[str]:
    rank = store.manifest.ranks[0].rank if store.manifest.ranks else None
    if rank is None:
        return []
    return (
        store.table("ops", rank).select(pl.col("name").cast(pl.String).unique()).collect()["name"].to_list()
    )
