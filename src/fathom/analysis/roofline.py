"""Roofline of kernels and steps: the time their work needs at a machine's ceilings, MFU and HFU."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fathom.analysis.entries import IDLE, WORK, Entry
from fathom.analysis.results import NO_CEILING_FOR, Device, LedgerRow, Utilisation
from fathom.machine import Limits
from fathom.machine.datasheet import Sheet
from fathom.units import MS_PER_S, NS_PER_S

NEED = {"need_ns": pl.Float64, "bound": pl.String, "unbounded": pl.String, "unit": pl.String}
# fp32 products that tensor cores ran in TF32, by the kernel's name: cuBLAS (nvjet: A, B and C in s), CUTLASS
TF32 = r"tf32|s1688gemm|tensorop_s\d+|nvjet_(?:sm\d+_)?s[a-z]{2}_"


def needs(work: pl.DataFrame, limits: Limits | None) -> pl.DataFrame:
    """Return the columns of NEED for each row of `work`: ns at the ceiling, ceiling, why unknown, and unit.

    `work` has kind, name, direction, flops, bytes, work_dtype, footprint (bytes of the whole op) and product
    (whether matrix units run it). The time is the largest ratio of work to ceiling over all resources. If the
    FLOPs of a fused kernel are unknown, only its traffic counts. Without `limits`, only the unit is known.
    """
    limits = limits or Limits()
    columns = work.with_columns(unit=_unit(), **_path(limits))
    columns = columns.with_columns(
        arithmetic=pl.col("flops") / _rate("unit", limits.arithmetic) * NS_PER_S,
        traffic=pl.col("bytes") / pl.col("bandwidth") * NS_PER_S,
    )
    columns = columns.with_columns(
        arithmetic=pl.when("product").then("arithmetic").otherwise(_or_nothing("arithmetic")),
        traffic=pl.when(_uncounted()).then(_or_nothing("traffic")).otherwise("traffic"),
    )
    known = pl.col("arithmetic").is_not_null() & pl.col("traffic").is_not_null()
    computes = pl.col("arithmetic") > pl.col("traffic")
    return columns.select(
        pl.when(known).then(pl.max_horizontal("arithmetic", "traffic")).alias("need_ns"),
        pl.when(known).then(pl.when(computes).then("unit").otherwise("path")).alias("bound"),
        pl.when(~known).then(_why()).cast(pl.String).alias("unbounded"),
        "unit",
    )


def _unit() -> pl.Expr:
    """Return the arithmetic's ceiling: matrix units for products (perhaps in TF32), else vector units."""
    tf32 = (pl.col("work_dtype") == "fp32") & pl.col("name").str.contains(TF32)
    matrix = pl.when(tf32).then(pl.lit("tf32")).otherwise("work_dtype")
    vector = pl.when(pl.col("work_dtype") == "fp64").then(pl.lit("fp64")).otherwise(pl.lit("fp32"))
    return pl.when("product").then(pl.lit("matmul.") + matrix).otherwise(pl.lit("vector.") + vector)


def _or_nothing(column: str) -> pl.Expr:
    return pl.col(column).fill_null(0.0)


def _uncounted() -> pl.Expr:
    """Return whether a row is a product with known bytes, which arithmetic bounds in any case."""
    return pl.col("product") & pl.col("bytes").is_not_null()


def _path(limits: Limits) -> dict[str, pl.Expr]:
    """Return the path that the bytes take, and its bandwidth, as columns."""
    direction = pl.lit("copy ") + pl.col("direction")
    cached = pl.col("footprint") <= limits.cache_bytes
    copied, written = pl.col("kind") == "copy", pl.col("kind") == "set"
    linked = pl.col("kind") == "collective"
    memory = pl.when(written).then(pl.lit(limits.writes)).otherwise(pl.lit(limits.memory))
    kept = pl.when(cached).then(pl.lit(limits.cache)).otherwise(memory)
    name = pl.when(cached).then(pl.lit(limits.cache_name)).otherwise(pl.lit(limits.memory_name))
    return {
        "path": pl.when(copied).then(direction).when(linked).then(pl.lit("link")).otherwise(name),
        "bandwidth": pl.when(copied)
        .then(_rate("direction", limits.copies))
        .when(linked)
        .then(pl.lit(limits.link, pl.Float64))
        .otherwise(kept),
    }


def _rate(column: str, rates: dict[str, float]) -> pl.Expr:
    return pl.col(column).replace_strict(rates, default=None, return_dtype=pl.Float64)


def _why() -> pl.Expr:
    unknown = pl.col("bytes").is_null() | (pl.col("product") & pl.col("flops").is_null())
    missing = pl.when(pl.col("traffic").is_null()).then("path").otherwise("unit").fill_null("it")
    return (
        pl.when(unknown)
        .then(pl.coalesce("abstained", pl.lit("its work is unknown")))
        .otherwise(pl.lit(NO_CEILING_FOR) + missing)
    )


_NO_WORK = (IDLE, Entry.OVERHEAD, Entry.UNATTRIBUTED)
LITTLE = 0.01  # of the working time: if the work of more is unknown, FLOPs are a lower bound
BEYOND = 1.1  # times a ceiling: a higher rate is impossible, or the ceiling was measured too low
CONVENTION = (
    "MFU: algorithmic FLOPs of matrix products, convolutions and attention (causal masks halved, "
    "recomputation not counted) per step over the peak of their dtype; HFU: the same with recomputation"
)


def at_ceiling(device: Device, limits: Limits | None) -> None:
    """Set `at_ceiling_ms` of a device: the time of its work at the ceilings, or of its launches if longer."""
    working = [entry for entry in device.ledger if not entry.entry.startswith(_NO_WORK)]
    known = [entry for entry in working if entry.at_ceiling_ms is not None]
    busy = sum(entry.ms for entry in working)
    if limits is None or not known or not busy:
        return
    for entry in (*device.ledger, *device.profiled_ledger, *device.mean_ledger):
        if entry.entry.startswith(IDLE):
            entry.at_ceiling_ms = 0.0
    needed = sum(min(entry.at_ceiling_ms or 0.0, entry.ms) for entry in known)  # at most the measured time
    launched = sum(entry.count or 0 for entry in working) * (limits.launch_s or 0.0) * MS_PER_S
    device.at_ceiling_ms = max(needed, launched)
    device.at_ceiling_bound = "work" if needed >= launched else "launches"
    device.at_ceiling_known = sum(entry.ms for entry in known) / busy


def utilisation(
    ledger: list[LedgerRow], step_ms: float, limits: Limits | None, datasheet: Mapping[str, float] | None
) -> Utilisation | None:
    """Return MFU and HFU of a step of `step_ms`; None without products of known FLOPs and peak.

    `datasheet` has dense peaks in FLOP/s by the names of ceilings. Measured peaks that products exceed are
    ignored.
    """
    products = [entry for entry in ledger if entry.product_flops and entry.unit]
    usable = limits is not None and limits.measured and not _beaten(products, limits)
    measured = limits.arithmetic if limits and usable else {}
    mfu, published = (_share(products, peaks, step_ms) for peaks in (measured, datasheet or {}))
    if mfu is None and published is None:
        return None
    return Utilisation(
        mfu=mfu,
        hfu=_share(products, measured, step_ms, recomputed=True),
        mfu_datasheet=published,
        flops=sum(entry.product_flops - entry.recomputed_flops for entry in products),
        partial=_unknown_share(ledger) > LITTLE,
        convention=CONVENTION,
        hfu_datasheet=_share(products, datasheet or {}, step_ms, recomputed=True),
        step_ms=step_ms,
        units=_units(products),
    )


def _units(products: list[LedgerRow]) -> list[str]:
    """Return the ceilings of the products, the one with most FLOPs first."""
    flops: dict[str, float] = {}
    for entry in products:
        flops[entry.unit or ""] = flops.get(entry.unit or "", 0.0) + entry.product_flops
    return sorted(flops, key=lambda unit: (-flops[unit], unit))


def _beaten(products: list[LedgerRow], limits: Limits) -> bool:
    """Return whether products ran faster than the measured peaks, so that shares of these mean nothing."""
    took = sum(entry.ms if entry.own_ms is None else entry.own_ms for entry in products)
    share = _share(products, limits.arithmetic, took, recomputed=True) if took else None
    return share is not None and share > BEYOND


def _unknown_share(ledger: list[LedgerRow]) -> float:
    """Return the share of the working time whose work is unknown and may contain products."""
    working = [entry for entry in ledger if entry.entry in WORK]
    unknown = sum(entry.ms for entry in working if entry.bytes is None)
    return unknown / max(sum(entry.ms for entry in working), 1e-9)


def _share(
    products: list[LedgerRow], peaks: Mapping[str, float], step_ms: float, recomputed: bool = False
) -> float | None:
    """Return the products' time at `peaks` as a share of the step; None if a dtype's peak is unknown."""
    needed = 0.0
    for entry in products:
        if not peaks.get(entry.unit or ""):
            return None
        flops = entry.product_flops - (0.0 if recomputed else entry.recomputed_flops)
        needed += flops / peaks[entry.unit or ""]
    return needed * MS_PER_S / step_ms if products else None


COMPILED = "triton_"  # prefix of TorchInductor's kernels
PARTS = (
    "the compiled kernel moves a part of its arguments: moving all of them would take longer than the kernel"
)
_LINKED = (Entry.COMMUNICATION, Entry.MOVING_BYTES)
_PATHS = {"HtoD": "pcie", "DtoH": "pcie", "PtoP": "link", "DtoD": "hbm"}


def check_rates(ledger: list[LedgerRow], limits: Limits | None, sheet: Sheet | None) -> None:
    """Set `problem` of rows whose rate exceeds BEYOND times a measured ceiling, else a datasheet peak.

    If the time of a row is inferred, its rates are removed instead.
    The bytes of a compiled kernel are those of all its arguments. If it cannot have moved them all, the bytes
    and the figures that depend on them are removed, and `abstained` has the reason.
    """
    for entry in ledger:
        times, ceiling = _times(entry, limits, sheet)
        if times <= BEYOND:
            continue
        if entry.inferred:  # the time was inferred too short, so the rate is unknown rather than impossible
            entry.flops_per_s = entry.bytes_per_s = None
        elif entry.detail.startswith(COMPILED) and not entry.product_flops:
            _remove_bytes(entry)
        else:
            entry.problem = f"{100 * times:.0f} % of {ceiling}"


def _times(entry: LedgerRow, limits: Limits | None, sheet: Sheet | None) -> tuple[float, str]:
    """Return the ratio of a row's rate to its ceiling, and the ceiling; (0, "") without one."""
    measured = limits is not None and limits.measured
    if measured and entry.at_ceiling_ms is not None and entry.own_ms and entry.bound:
        return entry.at_ceiling_ms / entry.own_ms, f"the measured ceiling ({entry.bound})"
    if sheet is None or measured or not entry.own_ms:
        return 0.0, ""
    name, rate = _published(entry)
    figure = sheet.figures.get(name)
    return (rate / figure.value, f"the datasheet's {name}") if figure and figure.value else (0.0, "")


def _published(entry: LedgerRow) -> tuple[str, float]:
    """Return the name of the datasheet figure that limits a row, and the row's rate.

    Compute rows are checked for arithmetic only, because bytes from caches can exceed the
    datasheet's memory bandwidth.
    """
    moved = entry.bytes_per_s or 0.0
    if entry.entry in _LINKED:
        return "link", moved
    if entry.entry == Entry.COPY:
        return _PATHS.get(entry.detail.split(" ")[0], ""), moved
    return entry.unit or "", entry.product_flops / ((entry.own_ms or 0.0) / MS_PER_S) if entry.own_ms else 0.0


def _remove_bytes(entry: LedgerRow) -> None:
    entry.bytes = entry.bytes_per_s = entry.at_ceiling_ms = None
    entry.bound, entry.unbounded, entry.abstained = "", PARTS, PARTS
