"""Rates that a software stack reaches on hardware: fractions of peaks, and constants of a framework."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np
from msgspec.structs import replace

from fathom.data import load
from fathom.errors import BadInputError, nearest
from fathom.planner.calibration import Calibration, calibration_of
from fathom.planner.hardware import Hardware
from fathom.planner.quantity import ASSUMED, CALIBRATED, MEASURED, Quantity
from fathom.planner.training.layout import SHARDING

_DTYPES = {"mxfp8": "fp8", "nvfp4": "fp4"}
_FIRST, _LATEST = (23, 1), (26, 6)
_CALIBRATED_AT = (26, 2)  # the release that the constants describe
Constants = dict[str, float]


@dataclass(frozen=True)
class Rates:
    """Rates and constants of one stack on one system; seconds, B/s and FLOP/s unless the name says more.

    `serial` constants are the share of a communication that never hides behind compute.
    """

    peaks: dict[str, float]
    matmul_share: dict[str, float]
    hbm: float
    grouped: float
    matmul_bytes: float
    cast: float
    attention_share: float
    attention_half: float
    fused: bool
    fused_sinks: bool
    score_bytes: float
    vector: float
    loss_bytes: float
    dispatch: float
    host_s: float
    moe_host_s: float
    selective: float
    overlaps_transfers: bool  # between the stages of an interleaved pipeline
    casts_once: bool  # weights are converted once a step, not for each micro-batch
    stops_early: bool  # recomputation skips the last product of a layer, whose output nothing needs
    narrow_sends: bool
    deduplicated: bool  # a token that visits several experts of a node is sent to it once
    link: float
    port: float
    tensor_serial: float
    tensor_backward: float  # share of the backward pass's part that is on the critical path
    context_serial: float
    expert_serial: float
    data_serial: float
    bubble: float
    grad_bytes: float
    step_s: float
    logit_bytes: float
    kept: float
    working: float
    fragmentation: float
    context_gib: float
    optimizer_bytes: float  # read and written per parameter, with fp32 states

    def matmul(self, precision: str, grouped: bool = False) -> float:
        """Return the rate of large matrix products."""
        dtype = _DTYPES.get(precision, precision)
        share = self.matmul_share.get(share_of(precision), self.matmul_share["bf16"])
        return self.peaks[dtype] * share * (self.grouped if grouped else 1.0)

    def attention(self, seq: int) -> float:
        """Return the rate of fused attention over forward and backward, causal FLOPs."""
        return self.peaks["bf16"] * self.attention_share * seq / (seq + self.attention_half)

    @property
    def repeated_messages(self) -> float:
        """Return the share of a layer's messages that full recomputation repeats: not the last of four."""
        return 0.75 if self.stops_early else 1.0

    def sent_bytes(self, precision: str) -> float:
        """Return the bytes of an activation that tensor parallelism sends; some may be narrow."""
        return 1.5 if self.narrow_sends and is_narrow(precision) else 2.0


def share_of(precision: str) -> str:
    """Return the name of the precision's constant, the share of the peak that it reaches."""
    return "fp4" if precision == "nvfp4" else precision


def operand_bytes(precision: str) -> float:
    """Return the bytes of an element that a product reads; blocks add a scale."""
    return {"fp8": 1.0, "mxfp8": 1.03, "nvfp4": 0.5625}.get(precision, 2.0)


def is_narrow(precision: str) -> bool:
    """Return whether operands are converted from the type that activations have."""
    return precision not in ("bf16", "fp16", "fp32")


class Stack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A software stack: a row of stacks.yaml, which explains the fields, under its name.

    The release is given as months after the one that was calibrated.
    """

    sharding: list[str]
    grad_bytes: int
    name: str = ""
    months: float = 0.0
    like: str = ""
    releases: bool = False
    narrow_sends: bool = False
    optimizer_bytes: float = 30.0
    unfused: bool = False
    overlaps_backward: bool = False
    overlaps_transfers: bool = False
    casts_once: bool = False
    stops_early: bool = False
    date: tuple[int, int] = _CALIBRATED_AT
    no_sp: bool = False

    @property
    def kin(self) -> str:
        """Return the stack whose constants apply."""
        return self.like or self.name

    @property
    def shardings(self) -> list[int]:
        """Return the shardings that the stack runs by default."""
        return [SHARDING[name] for name in self.sharding]


@cache
def _stacks() -> dict[str, Stack]:
    return msgspec.convert(load(__package__, "stacks"), dict[str, Stack])


def stack(name: str) -> Stack:
    """Return the stack `megatron`, or that of a release as in `megatron-26.02`. Raises BadInputError."""
    dated = re.fullmatch(r"(.+)-(\d\d)\.(\d\d)(?:\.\d+)?", name)
    plain = dated[1] if dated else name
    row = _stacks().get(plain)
    if row is None or (dated and not row.releases):
        raise BadInputError(f"{name!r} is not a known stack; {nearest(name, _stacks())}.")
    year, month = (int(dated[2]), int(dated[3])) if dated else _LATEST if row.releases else row.date
    if not (_FIRST <= (year, month) <= _LATEST and 1 <= month <= 12):
        near = _FIRST if (year, month) < _FIRST else _LATEST if (year, month) > _LATEST else (year, 12)
        raise BadInputError(
            f"{name!r} is not a release that plans know; the nearest that works is "
            f"{plain}-{near[0]:02d}.{near[1]:02d}."
        )
    months = (year - _CALIBRATED_AT[0]) * 12 + month - _CALIBRATED_AT[1]
    return replace(row, name=plain, months=float(months))


@cache
def priors() -> dict[str, tuple[float, float, str]]:
    """Return every constant before calibration: value, spread of its logarithm, source."""
    return msgspec.convert(load(__package__, "priors"), dict[str, tuple[float, float, str]])


@cache
def calibration() -> Calibration:
    """Return the calibrated constants of training."""
    return calibration_of("fathom.planner.training")


def constants() -> Constants:
    """Return the calibrated value of every constant; the prior's where no calibration row informs it."""
    return {name: row[0] for name, row in priors().items()} | calibration().values


def draws() -> list[Constants]:
    """Return draws of the constants from what calibration leaves open."""
    values, rows = constants(), calibration().draws
    count = len(next(iter(rows.values())))
    return [values | {name: row[i] for name, row in rows.items()} for i in range(count)]


def constant(name: str) -> Quantity:
    """Return a constant with its interval (90 %) and provenance."""
    value, spread, source = priors()[name]
    spreads = calibration().spreads
    informed = name in spreads and spreads[name] < 0.9 * spread
    value, spread = constants()[name], spreads.get(name, spread)
    low, high = value * np.exp(-1.645 * spread), value * np.exp(1.645 * spread)
    provenance = CALIBRATED if informed else ASSUMED
    return Quantity(value, "", provenance, source, float(low), float(high))


def names_used(system: Hardware, running: Stack) -> dict[str, str]:
    """Return the name of the constant that plays each part, which depends on system and stack."""
    kin, plain = running.kin, system.system
    pick = _first_known
    return {
        "chip": pick(f"chip.{plain}", "chip.other"),
        "attention": pick(f"attention.{kin}.{family(system)}", "attention.other"),
        "tensor": pick(f"tensor.{kin.removesuffix('-eager')}", "tensor.other"),
        "port": pick(f"port.{running.name}", "port"),
        "logit": pick(f"logit.{running.name.replace('-eager', '-2024')}", "logit.other"),
        "score": pick(f"score.{kin}", "score"),
        "moe_host": "moe_host.grace" if plain.startswith("gb") else "moe_host.x86",
        "vector": pick(f"vector.{kin}", "vector.fsdp"),
        "stack": pick(f"stack.{kin}", "stack.fsdp"),
        "serial": pick(f"serial.{kin}", "serial.fsdp"),
    }


def _first_known(*names: str) -> str:
    return next(name for name in names if name in priors())


def family(system: Hardware) -> str:
    """Return the generation whose attention kernels a chip runs."""
    name = system.chip.lower()
    if name.startswith("a100"):
        return "ampere"
    return "hopper" if name.startswith(("h100", "h200", "h800", "gh200")) else "blackwell"


def rates_of(system: Hardware, running: Stack, c: Constants) -> Rates:
    """Return the rates of a stack on a system by constants `c`."""
    use = {part: c[name] for part, name in names_used(system, running).items()}
    # Libraries were tuned for Ampere before the first of these dates.
    aged = 1.0 if family(system) == "ampere" else c["drift"] ** running.months
    tuned = c["moe_drift"] ** -running.months
    chip = use["chip"] * use["stack"] * aged
    eager = running.name.endswith("-eager")
    return Rates(
        peaks={key.split(".")[1]: q.value for key, q in system.figures.items() if key.startswith("matmul.")},
        matmul_share={p: _share(system, p, c[f"matmul.{p}"] * chip) for p in ("bf16", "fp8", "mxfp8", "fp4")},
        hbm=system["hbm"].value * (1.0 if system["hbm"].provenance == MEASURED else 0.85),
        grouped=c["grouped"] / tuned**0.5,
        matmul_bytes=c["matmul_bytes"],
        cast=c["cast"],
        attention_share=_share(system, "bf16", use["attention"] * use["chip"]),
        attention_half=c["attention_half"],
        fused=not running.unfused,
        fused_sinks=running.months >= 4,
        score_bytes=use["score"],
        vector=use["vector"],
        loss_bytes=c["loss"],
        dispatch=c["dispatch"] * tuned,
        host_s=c["host"],
        moe_host_s=use["moe_host"] * tuned,
        selective=c["selective.torchtitan"] if running.kin.startswith("torchtitan") else c["selective"],
        casts_once=running.casts_once,
        overlaps_transfers=running.overlaps_transfers,
        stops_early=running.stops_early,
        narrow_sends=running.narrow_sends,
        deduplicated=running.months > -8,
        link=min(1.0, c["link"]),
        port=min(1.0, use["port"]),
        tensor_serial=use["tensor"],
        tensor_backward=c["beside"] if running.overlaps_backward else 1.0,
        context_serial=c["context"],
        expert_serial=c["experts"] * tuned,
        data_serial=use["serial"],
        bubble=c["bubble"],
        grad_bytes=float(running.grad_bytes),
        step_s=c["step"],
        logit_bytes=use["logit"],
        kept=c["kept"] * (c["kept_eager"] if eager else 1.0),
        working=c["working"],
        fragmentation=c["fragmentation"],
        context_gib=c["context_gib"],
        optimizer_bytes=running.optimizer_bytes,
    )


def _share(system: Hardware, precision: str, share: float) -> float:
    """Return the share of the system's figure, which is below the peak if it was measured."""
    figure = system.figures.get(f"matmul.{_DTYPES.get(precision, precision)}")
    if figure is None or figure.provenance != MEASURED:
        return share
    return min(1.0, share / 0.8)  # a short measurement reaches 0.8 of the peak: `matmul.bf16` on an H200
