"""Layouts of a training job, one or a million at once: how model, batch and sequence are spread over GPUs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.planner.training.loading import Loader

DDP, ZERO1, ZERO2, FSDP = 0, 1, 2, 3
SHARDING = {"ddp": DDP, "zero1": ZERO1, "zero2": ZERO2, "fsdp": FSDP}
NONE, SELECTIVE, FULL = 0, 1, 2
LARGEST = 10**9  # sequence, batch and GPUs of a job
RECOMPUTE = {"none": NONE, "selective": SELECTIVE, "full": FULL}


@dataclass(frozen=True)
class Job:
    """The goal of a training step, equal for all layouts: batch, sequence, precision, and data loading."""

    seq: int
    batch: int  # sequences in a step, over all GPUs
    gpus: int
    precision: str = "bf16"
    loader: Loader | None = None  # None: loading is not planned

    def __post_init__(self) -> None:
        for name in ("seq", "batch", "gpus"):
            if not 0 < getattr(self, name) <= LARGEST:
                raise BadInputError(f"{name} is {getattr(self, name)}; give 1 to {LARGEST:,}.")


class Layout(msgspec.Struct, frozen=True):
    """One layout by the names that launchers use; see `Layouts` for its degrees."""

    dp: int
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    micro: int
    sharding: str
    shard: int
    recompute: str
    sp: bool

    @property
    def words(self) -> str:
        """The layout in words: `dp=8 tp=4 fsdp`, without degrees of one."""
        names = ("dp", "shard", "tp", "pp", "vpp", "cp", "ep")
        degrees = [f"{name}={degree}" for name in names if (degree := getattr(self, name)) > 1]
        again = [] if self.recompute == "none" else [f"recompute={self.recompute}"]
        return " ".join([*degrees, f"micro={self.micro}", self.sharding, *again])

    @property
    def coded(self) -> Layouts:
        """The layout as an array of one."""
        coded = {"sharding": SHARDING[self.sharding], "recompute": RECOMPUTE[self.recompute]}
        return Layouts(**(msgspec.structs.asdict(self) | coded))


@dataclass(frozen=True)
class Layouts:
    """Degrees of parallelism as arrays of one length.

    `tp` splits matrices, `pp` layers (in `vpp` interleaved chunks), `cp` the sequence, `ep` the experts, and
    `dp` the batch; `shard` of the `dp` ranks share one copy of the parameters (HSDP if fewer than all).
    `micro` is sequences in a micro-batch. `sharding` and `recompute` are codes of this module.
    """

    dp: Any
    tp: Any = 1
    pp: Any = 1
    vpp: Any = 1
    cp: Any = 1
    ep: Any = 1
    micro: Any = 1
    sharding: Any = ZERO1
    shard: Any = 0  # 0: all of dp
    recompute: Any = NONE
    sp: Any = True  # sequence parallelism: norms and residuals are split by tp too

    def __post_init__(self) -> None:
        values = np.broadcast_arrays(*(np.atleast_1d(getattr(self, f.name)) for f in fields(self)))
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def __len__(self) -> int:
        return len(self.dp)

    def __getitem__(self, chosen: Any) -> Layouts:
        index = np.atleast_1d(chosen)
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @property
    def first(self) -> Layout:
        """The first layout."""
        values = {f.name: getattr(self, f.name)[0].item() for f in fields(self)}
        values["sharding"] = next(name for name, code in SHARDING.items() if code == values["sharding"])
        values["recompute"] = next(name for name, code in RECOMPUTE.items() if code == values["recompute"])
        return Layout(**(values | {"sp": bool(values["sp"])}))

    @property
    def gpus(self) -> np.ndarray:
        """Return the GPUs that each layout takes."""
        return self.tp * self.pp * self.cp * self.dp

    def accumulation(self, batch: int) -> np.ndarray:
        """Return the micro-batches of a step."""
        return np.maximum(1, batch // (self.micro * self.dp))
