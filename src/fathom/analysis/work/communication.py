"""Collectives: the bytes that each rank moves over its links.

The factors for n ranks are those of NCCL's tests for bus bandwidth
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). An all-reduce moves 2 (n - 1) / n of
the message; all-gather, reduce-scatter and all-to-all move (n - 1) / n of the full data.
"""

from __future__ import annotations

from fathom.analysis.work.call import Call, Formula, UnknownWorkError, Work
from fathom.analysis.work.dtypes import SIZE

RECORD = "record_param_comms"
FIELDS = ("name", "dtype", "sent", "received", "ranks")  # values of RECORD; the group may follow
GROUP = ("group", "description", "members")
ELEMENTS = {
    "Float": "fp32", "Double": "fp64", "Half": "fp16", "BFloat16": "bf16", "Byte": "uint8", "Char": "int8",
    "Bool": "bool", "Int": "int32", "Long": "int64", "Short": "int16", "Float8_e4m3fn": "fp8",
    "Float8_e5m2": "fp8",
}  # fmt: skip
NAMES = {
    "all_reduce": "allreduce", "_allgather_base": "allgather", "all_gather": "allgather",
    "_reduce_scatter_base": "reducescatter", "reduce_scatter": "reducescatter", "all_to_all": "alltoall",
    "all_to_allv": "alltoall", "alltoall_base": "alltoall", "all_to_all_single": "alltoall",
}  # fmt: skip


def _moved(name: str, sent: int, received: int, ranks: int) -> float:
    """Return the elements that one rank moves over its links."""
    others = (ranks - 1) / ranks
    if name == "allreduce":
        return 2 * others * sent
    if name == "allgather":
        return others * max(sent, received)
    if name in ("reducescatter", "alltoall"):
        return others * max(sent, received)
    if name in ("broadcast", "reduce", "send", "recv"):
        return float(max(sent, received)) if ranks > 1 else 0.0
    if name in ("barrier", "wait"):
        return 0.0
    raise UnknownWorkError(f"the bytes that {name} moves are unknown")


def _work(call: Call) -> Work:
    if len(call.values) < len(FIELDS):
        raise UnknownWorkError("the size of the collective was not recorded")
    name, element, sent, received, ranks = call.values[: len(FIELDS)]
    size = SIZE[ELEMENTS[element]]
    plain = NAMES.get(name, name).removesuffix("_coalesced")
    return Work(0.0, _moved(plain, int(sent), int(received), max(int(ranks), 1)) * size)


FORMULAS: dict[str, Formula] = {RECORD: _work}
