"""The time of a training step, entry by entry, for one layout or a million at once."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from fathom.planner.hardware import Hardware
from fathom.planner.training.layout import DDP, FSDP, FULL, NONE, SELECTIVE, ZERO2, Job, Layouts
from fathom.planner.training.rates import Rates, is_narrow, operand_bytes
from fathom.planner.workload import Attention, Block, Experts, Latent, Matmul, Model, Recurrent, matmuls
from fathom.planner.workload.conventions import seen
from fathom.planner.workload.model import COLUMN, ROW

BYTES = 2.0  # of an activation or a weight as it is communicated: bf16
_BACKWARD = 2.0  # of a product: the gradients of both of its inputs
_SMOOTH = 4  # of the maximum of two times that vary from kernel to kernel
_ATTENTION_BACKWARD = 2.5  # the flash kernel recomputes the scores


@dataclass
class Layer:
    """Seconds of one layer for one micro-batch, forward and backward, on one GPU."""

    matmul: Any = 0.0
    attention: Any = 0.0
    vector: Any = 0.0
    host: Any = 0.0
    tensor: Any = 0.0
    context: Any = 0.0
    expert: Any = 0.0

    def plus(self, other: Layer, times: float) -> Layer:
        return Layer(*(a + times * b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def compute(self) -> Any:
        return self.matmul + self.attention + self.vector + self.host


class Step:
    """Computes the seconds of a step for the layouts of one job."""

    def __init__(self, model: Model, hardware: Hardware, job: Job, layouts: Layouts, rates: Rates) -> None:
        self.model, self.hardware, self.job, self.at, self.rates = model, hardware, job, layouts, rates
        self.tokens = layouts.micro * job.seq / layouts.cp  # of a micro-batch, on one rank of tp
        self.count = layouts.accumulation(job.batch)
        self.split = np.where(layouts.sp, layouts.tp, 1)  # of norms and residuals

    def entries(self) -> dict[str, np.ndarray]:
        """Return the seconds of a step by entry; they add up to the step time."""
        layers = Layer()
        for block in self.model.blocks:
            layers = layers.plus(self.layer(block), block.count)
        head, at = self._head(), self.at
        fullest = fullest_stage(self.model.layers, at)
        stage = Layer(*(value * fullest for value in vars(layers).values()))
        last = self._on_last_stage(head)
        times = {
            "matmuls": stage.matmul + last.matmul,
            "attention": stage.attention,
            "norms and elementwise": stage.vector + last.vector,
            "host": stage.host,
            "tensor parallel": self.rates.tensor_serial * stage.tensor,
            "context parallel": hidden(stage.attention, stage.context, self.rates.context_serial),
            "expert parallel": self.rates.expert_serial * stage.expert,
            "pipeline transfers": self._transfers(),
        }
        compute = sum(times.values())
        times["data parallel"] = self._per_micro(compute)
        micro = {name: self.count * value for name, value in times.items()}
        typical = (compute + times["data parallel"]) - (last.compute - head.compute / at.pp)
        micro["pipeline bubble"] = (
            np.where(at.pp > 1, (at.pp - 1) / at.vpp * typical / (at.pp * fullest), 0.0) * self.rates.bubble
        )
        micro["data parallel"] = micro["data parallel"] + self._per_step(compute)
        micro["optimizer"] = self._optimizer()
        micro["step overhead"] = np.full(len(at), self.rates.step_s)
        rest = np.sum(np.array([np.broadcast_to(v, len(at)) for v in micro.values()]), axis=0)
        micro["slowest rank"] = wait_of(self.hardware, self.job.gpus) * rest
        if self.job.loader:
            rest = rest + micro["slowest rank"]
            micro["data loading"] = self.job.loader.wait(self.hardware, self.job.batch / at.dp, at, rest)
        return {name: np.broadcast_to(value, len(at)) for name, value in micro.items()}

    def seconds(self) -> np.ndarray:
        """Return the time of a step."""
        return np.sum(list(self.entries().values()), axis=0)

    # One layer

    def layer(self, block: Block) -> Layer:
        rates, repeated = self.rates, self._repeated()
        forward, backward, skipped = self._matmuls(block)
        seconds = self._attention(block)
        vector = self._vector(block)
        again = np.where(self.at.recompute == FULL, 1.0, 0.0)
        # Without a fused kernel, selective recomputation repeats attention, whose scores are large.
        scored = again if rates.fused else np.where(self.at.recompute > NONE, 1.0, 0.0)
        matmul = forward + repeated * (forward - skipped * again) + backward
        device = matmul + seconds + vector
        return Layer(
            matmul=matmul,
            attention=seconds * (1 + scored / (1 + _ATTENTION_BACKWARD)),
            vector=vector * (1 + repeated / 3),
            host=_excess(rates.moe_host_s if block.is_moe else rates.host_s, device),
            tensor=self._tensor(block) * (1 + again * rates.repeated_messages + rates.tensor_backward),
            context=self._context(block),
            expert=self._expert(block) * (1 + again / 2),
        )

    def _repeated(self) -> np.ndarray:
        """Return the share of the forward pass that the backward pass repeats."""
        share = self.rates.selective if self.rates.fused else 0.0
        selective = np.where(self.at.recompute == SELECTIVE, share, 0.0)
        return np.where(self.at.recompute == FULL, 1.0, selective)

    def _matmuls(self, block: Block) -> tuple[Any, Any, Any]:
        """Return the seconds forward and backward, and the forward part that recomputation skips."""
        each = [self.matmul(matmul) for matmul in matmuls(block, self.model.hidden)]
        last = each[-1][0] if self.rates.stops_early else 0.0
        return sum(forward for forward, _ in each), sum(backward for _, backward in each), last

    def matmul(self, matmul: Matmul, precision: str | None = None) -> tuple[Any, Any]:
        """Return the seconds forward and backward: arithmetic at its rate, and bytes that it cannot hide."""
        at, rates, precision = self.at, self.rates, precision or self.job.precision
        n = matmul.n / np.where(_is_split(matmul, COLUMN), at.tp, 1)
        k = matmul.k / np.where(_is_split(matmul, ROW), at.tp, 1)
        m, local = self.tokens, 1.0
        if matmul.count > 1:  # experts: whole on one GPU, and the tokens are split by tp instead
            n, k = matmul.n * np.ones(len(at)), matmul.k * np.ones(len(at))
            local = np.maximum(1, matmul.count / at.ep)
            m = self.tokens / at.tp * matmul.share * matmul.count / local
        arithmetic = 2.0 * m * n * k * local / rates.matmul(precision, grouped=matmul.count > 1)
        inputs, weights, outputs = m * k * local, k * n * local, m * n * local
        read = operand_bytes(precision)
        moved = read * (inputs + weights) + BYTES * outputs
        back = read * (inputs + weights + 2 * outputs) + BYTES * (inputs + weights)
        # A narrow operand is written by rows and by columns.
        cast = rates.cast * (BYTES + 2 * read) if is_narrow(precision) else 0.0
        often = self.count if rates.casts_once else 1
        forward = rates.matmul_bytes * moved + cast * (inputs + weights / often)
        return (
            arithmetic + forward / rates.hbm,
            _BACKWARD * arithmetic + (rates.matmul_bytes * back + cast * outputs) / rates.hbm,
        )

    def _attention(self, block: Block) -> Any:
        """Return the seconds of mixing over the sequence, forward and backward, without the projections."""
        mixer, at, rates = block.mixer, self.at, self.rates
        if isinstance(mixer, Recurrent):
            return 6.0 * 4 * mixer.state_elements * self.tokens / at.tp / (0.1 * rates.matmul("bf16"))
        if not rates.fused or (getattr(mixer, "sinks", False) and not rates.fused_sinks):
            return self._scores(mixer)
        flops = 2.0 * mixer.heads * (mixer.qk_dim + mixer.value_dim) * seen(mixer, self.job.seq)
        passes = (1 + _ATTENTION_BACKWARD) / rates.attention(self.job.seq)
        return flops * self.tokens / at.tp * passes

    def _scores(self, mixer: Attention | Latent) -> Any:
        """Return the seconds of attention without a fused kernel, which writes and reads all scores."""
        at, rates = self.at, self.rates
        pairs = self.tokens * self.job.seq * mixer.heads / at.tp
        flops = 2.0 * pairs * (mixer.qk_dim + mixer.value_dim) * (1 + _BACKWARD)
        return flops / (rates.matmul("bf16") * 0.7) + rates.score_bytes * pairs / rates.hbm

    def _vector(self, block: Block) -> Any:
        """Return the seconds of norms, residuals, activations and rotary embeddings in both passes."""
        at, hidden = self.at, self.model.hidden
        around = 22.0 * hidden / self.split
        inside = 5.0 * _mixer_width(block) / at.tp
        mlp = block.mlp
        if isinstance(mlp, Experts):
            inner = mlp.active * mlp.ffn + mlp.shared_ffn
            dispatched = self.rates.dispatch * mlp.active * hidden / at.tp
        else:
            inner, dispatched = mlp.ffn, 0.0
        inside = inside + (10.0 if mlp.gated else 5.0) * inner / at.tp + dispatched
        return self.rates.vector * BYTES * self.tokens * (around + inside) / self.rates.hbm

    def _head(self) -> Layer:
        """Return the output matrix, the loss and the embedding."""
        logits = Matmul("logits", self.model.hidden, self.model.vocab, COLUMN)
        seconds = sum(self.matmul(logits, "bf16"))
        moved = self.tokens * self.model.vocab / self.at.tp * self.rates.loss_bytes
        return Layer(matmul=seconds, vector=moved / self.rates.hbm)

    def _on_last_stage(self, head: Layer) -> Layer:
        """Return the head's share of the slowest stage: none if the last stage has fewer layers instead."""
        even = self.model.layers % (self.at.pp * self.at.vpp) == 0
        return Layer(*(value * even for value in vars(head).values()))

    # Communication

    def _tensor(self, block: Block) -> Any:
        """Return the seconds of two all-reduces (or their halves, with sp) in one pass of a layer."""
        at = self.at
        pairs = 1 if isinstance(block.mlp, Experts) and not block.mlp.shared_ffn else 2
        size = self.rates.sent_bytes(self.job.precision) * self.tokens * self.model.hidden
        return pairs * self.ring(2 * size, at.tp, 1, messages=2)

    def _context(self, block: Block) -> Any:
        size = BYTES * self.tokens * block.mixer.kv_elements / self.at.tp
        # Keys and values go around the ring once, and with their gradients in the backward pass.
        return 3 * size * (self.at.cp - 1) / self._bandwidth(self.at.cp, self.at.tp)

    def _expert(self, block: Block) -> Any:
        if not isinstance(block.mlp, Experts):
            return 0.0
        at = self.at
        size = BYTES * self.tokens / at.tp * block.mlp.active * self.model.hidden
        return 4 * self._exchange(size, block.mlp.active)

    def _transfers(self) -> Any:
        """Return the seconds of sends and receives between stages, which wait for the link's latency."""
        at = self.at
        size = BYTES * self.tokens * self.model.hidden / at.tp  # each rank of tp sends its part
        each = size / self._bandwidth(2, at.tp * at.cp * at.dp) + self.hardware.fabric[-1].latency.value
        exposed = np.where((at.vpp > 1) & self.rates.overlaps_transfers, self.rates.data_serial, 1.0)
        return np.where(at.pp > 1, 2 * at.vpp * each * exposed, 0.0)

    def _per_micro(self, compute: Any) -> Any:
        """Return the exposed seconds of gathering sharded parameters for each micro-batch."""
        at = self.at
        size, ranks = BYTES * self._local_parameters(), self._sharers()
        gathers = (at.sharding == FSDP) & (at.pp == 1)  # a pipeline keeps its parameters gathered
        passes = np.where(gathers, 2.0 + self.rates.grad_bytes / BYTES, 0.0)
        seconds = passes * self.ring(size, ranks, at.tp, self._messages())
        seconds = seconds + np.where(
            (at.sharding == ZERO2) & (at.pp == 1),
            (self.rates.grad_bytes / BYTES) * self.ring(size, ranks, at.tp, self._messages()),
            0.0,
        )
        return hidden(compute, seconds, self.rates.data_serial)

    def _per_step(self, compute: Any) -> Any:
        """Return the exposed seconds of reducing gradients and gathering parameters once a step."""
        at, size = self.at, self._local_parameters()
        reduce = self.ring(self.rates.grad_bytes * size, at.dp * at.cp, at.tp, 8)
        gather = self.ring(BYTES * size, at.dp * at.cp, at.tp, 8)
        once = reduce + np.where(at.sharding == DDP, reduce, gather)
        once = np.where(
            (at.sharding == FSDP) & (at.pp == 1),
            0.0,
            np.where((at.sharding == ZERO2) & (at.pp == 1), gather, once),
        )
        across = np.where(
            (at.sharding >= ZERO2) & (self._sharers() < at.dp),
            2 * self.ring(self.rates.grad_bytes * size / self._sharers(), at.dp / self._sharers(), at.tp, 8),
            0.0,
        )
        return hidden(compute, once + across, self.rates.data_serial)

    def _sharers(self) -> Any:
        return np.where(self.at.shard > 0, self.at.shard, self.at.dp) * self.at.cp

    def _messages(self) -> Any:
        return self.model.layers / self.at.pp

    def _local_parameters(self) -> Any:
        """Return the parameters of one stage and one rank of tp and ep."""
        return local_parameters(self.model, self.at)

    def _optimizer(self) -> Any:
        at = self.at
        ranks = np.where(
            at.sharding == DDP, 1, self._sharers() if np.any(at.sharding == FSDP) else at.dp * at.cp
        )
        return self.rates.optimizer_bytes * self._local_parameters() / ranks / self.rates.hbm

    def ring(self, size: Any, ranks: Any, stride: Any, messages: Any = 1) -> Any:
        """Return the seconds of `ring_seconds` on this hardware."""
        return ring_seconds(self.hardware, self.rates, size, ranks, stride, messages)

    def _exchange(self, size: Any, active: int) -> Any:
        """Return the seconds of an all-to-all of `size` bytes; each GPU has one port out of its node."""
        at, inner, outer = self.at, self.hardware.fabric[0], self.hardware.fabric[-1]
        inside = np.clip(inner.gpus or 1, 1, at.ep)  # ranks of tp are ranks of ep too: they split the tokens
        nodes = at.ep / inside
        copies = active * (nodes - 1) / nodes
        if self.rates.deduplicated:  # a token crosses to a node once, and is copied there
            copies = (nodes - 1) * (1 - (1 - 1 / nodes) ** active)
        across = size * copies / active / (outer.rate * self.rates.port)
        within = size * (inside - 1) / inside / (inner.rate * self.rates.link)
        hops = np.where(nodes > 1, outer.latency.value, inner.latency.value) * np.log2(np.maximum(at.ep, 1))
        return np.where(at.ep > 1, np.maximum(across, within) + hops, 0.0)

    def _bandwidth(self, ranks: Any, stride: Any) -> Any:
        inner, outer = self.hardware.fabric[0], self.hardware.fabric[-1]
        local = ranks * stride <= (inner.gpus or 1)
        return np.where(local, inner.rate * self.rates.link, outer.rate * self.rates.port)


def ring_seconds(
    hardware: Hardware, rates: Rates, size: Any, ranks: Any, stride: Any = 1, messages: Any = 1
) -> Any:
    """Return the seconds to gather or scatter `size` bytes among `ranks` that are `stride` GPUs apart."""
    inner, outer = hardware.fabric[0], hardware.fabric[-1]
    share = (ranks - 1) / np.maximum(ranks, 1)
    inside = np.clip(np.floor((inner.gpus or 1) / stride), 1, ranks)
    local = ranks * stride <= (inner.gpus or 1)
    link, port = inner.rate * rates.link, outer.rate * rates.port
    moving = size * share / np.where(local, link, np.minimum(link, inside * port))
    hops = np.where(local, inner.latency.value * np.log2(np.maximum(ranks, 1)), 0.0)
    hops = hops + np.where(local, 0.0, outer.latency.value * np.log2(np.maximum(ranks, 2)))
    return np.where(ranks > 1, moving + messages * hops, 0.0)


def wait_of(hardware: Hardware, ranks: int) -> float:
    """Return the wait for the slowest of `ranks`, relative to the step, by the jitter of one."""
    return hardware["jitter"].value * expected_maximum(ranks)


def expected_maximum(ranks: int) -> float:
    """Return the mean of the largest of `ranks` standard normal deviates (Blom's approximation)."""
    return 0.0 if ranks < 2 else NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def hidden(compute: Any, moving: Any, serial: float) -> Any:
    """Return the seconds that communication adds to compute; `serial` is the share that never hides."""
    return np.maximum(compute, moving) + serial * np.minimum(compute, moving) - compute


def local_parameters(model: Model, at: Layouts) -> Any:
    """Return the parameters of the fullest stage, on one rank of tp and ep."""
    total: Any = 0.0
    for block in model.blocks:
        for matmul in matmuls(block, model.hidden):
            parts = at.ep if matmul.count > 1 else np.where(matmul.split in (COLUMN, ROW), at.tp, 1)
            total = total + block.count * matmul.parameters / parts
    heads = np.where(at.pp > 1, 1, 1 if model.tied else 2)
    return total * fullest_stage(model.layers, at) + heads * model.embedding / at.tp


def fullest_stage(layers: int, at: Layouts) -> Any:
    """Return the share of all layers in the fullest stage; a stage has whole layers in each of its chunks."""
    return np.ceil(layers / (at.pp * at.vpp)) * at.vpp / layers


def _excess(host: float, device: Any) -> Any:
    """Return the seconds that the device waits for a host that needs `host` to launch the layer's kernels."""
    return (device**_SMOOTH + host**_SMOOTH) ** (1 / _SMOOTH) - device


def _is_split(matmul: Matmul, how: str) -> bool:
    return matmul.split == how


def _mixer_width(block: Block) -> int:
    mixer = block.mixer
    if isinstance(mixer, Recurrent):
        return 4 * mixer.heads * mixer.head_dim
    return mixer.heads * mixer.qk_dim + 2 * mixer.kv_heads * mixer.qk_dim + mixer.heads * mixer.value_dim
