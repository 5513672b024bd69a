"""Time of one engine iteration: a roofline over weights, KV cache and links, and the host's part."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from fathom.planner.serving.deployment import BYTES, Deployment, _kv_share
from fathom.planner.workload import Latent, Recurrent

_SHARP = 4.0  # of the norm that joins compute and memory: near the larger, a little over it where they meet
_TILE = 32.0  # rows to which a grouped product pads the tokens of one expert


@dataclass(frozen=True)
class Batch:
    """The work of one attention rank in an iteration.

    `decode` sequences, whose contexts sum to `context`; `prefill` tokens, which attend to `pairs` tokens in
    all; `logits` rows of the output matrix.
    """

    decode: int
    context: float
    prefill: int = 0
    pairs: float = 0.0
    logits: int = 0


class Iteration:
    """Costs of a deployment's iterations in seconds, by the engine's constants."""

    def __init__(self, of: Deployment, constants: Mapping[str, float]) -> None:
        self.of, self.c = of, constants
        self.hbm = of.hardware["hbm"].value * constants["hbm"]
        precisions = {"bf16", *of.parts.dense, *(p for *_, p in of.parts.experts)}
        self.peaks = {(p, grouped): self._peak(p, grouped) for p in precisions for grouped in (False, True)}
        self.half = self.peaks["bf16", False]
        self.prefill_rate = of.hardware.matmul("bf16").value * constants["attention"]
        self.link = of.hardware.domain(of.gpus).rate * constants["link"]
        self._known: dict[tuple[int, int, int], float] = {}
        self.moe_layers = sum(count for count, *_ in of.parts.experts)

    def seconds(self, batch: Batch) -> float:
        """Return the time of the iteration."""
        key = (batch.decode, batch.prefill, batch.logits)
        if key not in self._known:
            self._known[key] = sum(self._by_tokens(batch).values())
        device = self._known[key] + self._decode(batch) + self._prefill(batch)
        return (device + self._host(batch, device)) * (1 + self.c["straggle"] * (1 - 1 / self.of.dp))

    def parts(self, batch: Batch) -> dict[str, float]:
        """Return the time of every part of the iteration; they sum to it."""
        attention = {"attention of decode": self._decode(batch), "attention of prefill": self._prefill(batch)}
        parts = self._by_tokens(batch) | attention
        parts["host"] = self._host(batch, sum(parts.values()))
        waited = self.c["straggle"] * (1 - 1 / self.of.dp) * sum(parts.values())
        return parts | {"waiting for ranks": waited}

    def _by_tokens(self, batch: Batch) -> dict[str, float]:
        """Return the parts that do not depend on contexts, so that equal batches share them."""
        decode = self._padded(batch)
        tokens = decode * (1 + self.of.drafted) + batch.prefill
        return {
            "dense matrices": self._dense(tokens),
            "experts": self._experts(tokens),
            "output matrix": self._head(decode * (1 + self.of.drafted) + batch.logits),
            "other kernels": self._elementwise(tokens),
            "links": self._links(tokens),
            "launches": self._launches(batch),
        }

    def _host(self, batch: Batch, device: float) -> float:
        """Return the host's time that the device waits for; an overlapping scheduler works beside it."""
        host = self.c["host"] + self.c["host_sequence"] * (batch.decode + batch.logits)
        return _both(device, host) - device if self.of.engine.overlaps else host

    def _padded(self, batch: Batch) -> int:
        """Return the decode batch as CUDA graphs pad it."""
        sizes = self.of.engine.graphs
        if not sizes or batch.prefill or not batch.decode:
            return batch.decode
        i = bisect.bisect_left(sizes, batch.decode)
        return min(sizes[i] if i < len(sizes) else batch.decode, max(self.of.batch_limit, batch.decode))

    def _peak(self, precision: str, grouped: bool = False) -> float:
        hardware = self.of.hardware
        native = {"int4": "bf16", "fp4": "fp4", "int8": "int8"}.get(precision, precision)
        while f"matmul.{native}" not in hardware.figures:
            native = {"fp4": "bf16", "fp8": "bf16", "int8": "bf16", "fp16": "bf16"}[native]
        if grouped and self.of.model.name.startswith("gpt-oss") and native == "fp4":
            native = "fp8"  # activations of mxfp4 weights
        share = self.c["matmul"] * self.c.get(f"matmul_{native}", 1.0)
        return hardware.matmul(native).value * share * (self.c["grouped"] if grouped else 1.0)

    def _dense(self, tokens: float) -> float:
        return sum(
            _both(2 * tokens * n / self.peaks[p, False], n * BYTES[p] / self.hbm)
            for p, n in self.of.parts.dense.items()
        )

    def _experts(self, tokens: float) -> float:
        of, total = self.of, 0.0
        routed = tokens * of.dp
        slices = of.gpus // of.ep  # GPUs that share one expert
        for layers, moe, elements, precision in of.parts.experts:
            hit = moe.experts / of.ep * (1 - (1 - moe.active / moe.experts) ** routed)
            visits = routed * moe.active / of.ep * (1 + self.c["imbalance"] * (1 - 1 / of.ep))
            padded = visits + hit * _TILE / 2
            compute = 2 * padded * elements / slices / self.peaks[precision, True]
            total += layers * _both(compute, hit * elements / slices * BYTES[precision] / self.hbm)
        return total

    def _decode(self, batch: Batch) -> float:
        """Return the time to attend to the KV cache; MLA's heads share one vector, so compute may bind."""
        if not batch.decode:
            return 0.0
        of, mean, total = self.of, batch.context / batch.decode, 0.0
        rate = self.hbm * self.c["kv"]
        for block in of.model.blocks:
            mixer = block.mixer
            if isinstance(mixer, Recurrent):
                total += block.count * batch.decode * mixer.state_elements * 8.0 / of.tp / rate
                continue
            read = batch.decode * min(mean, mixer.window or mean)
            moved = read * mixer.kv_elements * _kv_share(mixer, of.tp) * BYTES[of.kv]
            width = 2 * mixer.kv_rank + mixer.rope_dim if isinstance(mixer, Latent) else 2 * mixer.value_dim
            flops = 2 * read * (1 + of.drafted) * mixer.heads / of.tp * width
            share = self.c["decode_flops" if isinstance(mixer, Latent) else "decode_grouped"]
            total += block.count * _both(flops / (self.half * share), moved / rate)
        return total

    def _prefill(self, batch: Batch) -> float:
        if not batch.prefill:
            return 0.0
        total, mean = 0.0, batch.pairs / batch.prefill
        for block in self.of.model.blocks:
            mixer = block.mixer
            if isinstance(mixer, Recurrent):
                total += block.count * batch.prefill * 6.0 * mixer.state_elements / self.of.tp
                continue
            seen = batch.prefill * min(mean, mixer.window or mean)
            total += block.count * 2 * seen * mixer.heads / self.of.tp * (mixer.qk_dim + mixer.value_dim)
        return total / self.prefill_rate

    def _head(self, rows: float) -> float:
        elements = self.of.parts.head
        moved = 2 * elements + 12.0 * rows * self.of.model.vocab / self.of.tp
        return _both(2 * rows * elements / self.half, moved / self.hbm)

    def _elementwise(self, tokens: float) -> float:
        model = self.of.model
        routed = sum(count * moe.active for count, moe, *_ in self.of.parts.experts)
        moved = 2.0 * tokens * model.hidden * (12 * model.layers + 6 * routed / self.of.tp)
        return self.c["elementwise"] * moved / self.hbm

    def _links(self, tokens: float) -> float:
        of, total = self.of, 0.0
        size = 2.0 * tokens * of.model.hidden
        if of.tp > 1:
            each = self.c["all_reduce"] * (1 + 0.1 * of.tp) + 2 * (of.tp - 1) / of.tp * size / self.link
            total += 2 * of.model.layers * each
        if of.dp > 1:
            each = 2 * self.c["all_reduce"] + 1.5 * (of.dp - 1) * size / self.link
            total += self.moe_layers * each
        return total

    def _launches(self, batch: Batch) -> float:
        """Return the gaps between kernels: short in a CUDA graph, longer where the host launches each."""
        layers = self.of.model.layers + self.moe_layers
        eager = batch.prefill and not self.of.engine.compiled
        return layers * (self.c["eager"] if eager else self.c["graph"])


def _both(a: float, b: float) -> float:
    """Return the time of work that computes for `a` and moves data for `b`, mostly at once."""
    high, low = (a, b) if a > b else (b, a)
    return high * (1 + (low / high) ** _SHARP) ** (1 / _SHARP) if high > 0 else 0.0
