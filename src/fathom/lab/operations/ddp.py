"""Train data-parallel, one batch on each rank.

    fathom lab run overlapped-gradients gradient-buckets compressed-gradients

after_backward reduces all gradients in one call when the backward pass has ended. overlapped_gradients
reduces buckets of them while it runs, in buckets of 25 MB. gradient_buckets makes the buckets larger,
compressed_gradients sends them in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fathom.lab import Draw

LAYERS = 12
Gradients = dict[str, Tensor]
Step = Callable[[], Gradients]


def inputs(seed: int, device: str | None = None) -> tuple[list[Tensor], Tensor]:
    """Return the weights, equal on all ranks, and the batch of every rank."""
    draw = Draw(seed, device)
    width, rows = draw.size(gpu=4096, cpu=64), draw.size(gpu=2048, cpu=8)
    weights = [draw.normal(width, width, scale=width**-0.5) for _ in range(LAYERS)]
    return weights, draw.normal(dist.get_world_size(), rows, width)


class _Network(nn.Module):
    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weights)

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x + torch.tanh(x @ weight)
        return x


def _step(weights: list[Tensor], batches: Tensor, model: Any, network: _Network, finish: Any = None) -> Step:
    batch = batches[dist.get_rank()]

    def step() -> Gradients:
        network.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()
        if finish is not None:
            finish()
        return {name: parameter.grad for name, parameter in network.named_parameters()}

    return step


def reference(weights: list[Tensor], batches: Tensor) -> Step:
    """Compute the mean gradient of all batches on every rank, without communication."""
    network = _Network(weights)

    def step() -> Gradients:
        network.zero_grad()
        (sum(network(batch).square().mean() for batch in batches) / len(batches)).backward()
        return {name: parameter.grad for name, parameter in network.named_parameters()}

    return step


def after_backward(weights: list[Tensor], batches: Tensor) -> Step:
    network, ranks = _Network(weights), dist.get_world_size()

    def finish() -> None:
        gradients = [parameter.grad for parameter in network.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = flat.div_(ranks).split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)])

    return _step(weights, batches, network, network, finish)


def _ddp(weights: list[Tensor], batches: Tensor, hook: Any = None, **how: Any) -> Step:
    network = _Network(weights)
    model = DistributedDataParallel(network, **how)
    if hook is not None:
        model.register_comm_hook(None, hook)
    return _step(weights, batches, model, network)


def overlapped_gradients(weights: list[Tensor], batches: Tensor) -> Step:
    """title: Reduce gradients while the backward pass runs
    pair: {group: ranks, plain: after_backward}
    saves: exposed communication
    idea: The gradients of the last layers are ready long before those of the first. DistributedDataParallel
      fills buckets in that order, and reduces each as soon as it is full, on another stream, while the
      backward pass goes on. Only the last bucket is exposed.
    cost: Memory for the buckets, as large as the gradients, and multiprocessors that NCCL takes from the
      backward pass. The step becomes max(backward, communication) plus the last bucket, instead of their
      sum.
    not_when: The backward pass is much shorter than the communication, or gradients are accumulated over
      many micro-batches (then reduce only in the last one, with `no_sync`).
    shows: {exposed communication: all of it → the last bucket}
    no_gain: two H100s over NVLink, 0.8 % faster, less than the margin. 805 MB of gradients take 2.4 ms of a
      step of 54 ms at the measured bandwidth, so little can be hidden.
    tips: [communication.overlap]
    findings: {communication-exposed: 1, communication-after-backward: 1}
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020
    return _ddp(weights, batches)


def gradient_buckets(weights: list[Tensor], batches: Tensor) -> Step:
    """title: Use larger buckets, and keep gradients in them
    pair: {group: ranks, plain: overlapped_gradients}
    saves: latency of collectives, and a copy of each gradient
    idea: A collective reaches the link's bandwidth only with tens of megabytes. Buckets of 100 MB need a
      quarter of the collectives that the default of 25 MB needs. With gradient_as_bucket_view=True,
      gradients are written into the buckets directly.
    cost: A larger last bucket, which is exposed. The views save a copy of each gradient per step, and
      memory of the gradients' size.
    not_when: The network is slow and the backward pass short; then smaller buckets start earlier and
      overlap more. Code that replaces `.grad` does not work with the views.
    shows:
      collectives per step: one per 25 MB → one per 100 MB
      copies between gradients and buckets: two per gradient → none
    tips: [communication.bucket-size]
    findings: {communication-exposed: 2, communication-after-backward: 2}
    needs: {ranks: 2}
    proof: {latency: included}"""
    return _ddp(weights, batches, bucket_cap_mb=100, gradient_as_bucket_view=True)


def _in_bfloat16(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Reduce a bucket as `default_hooks.bf16_compress_hook` does, which refuses gloo."""
    wide = bucket.buffer()
    narrow = wide.to(torch.bfloat16).div_(dist.get_world_size())
    reduced = dist.all_reduce(narrow, async_op=True).get_future()
    return reduced.then(lambda done: wide.copy_(done.value()[0]))


def compressed_gradients(weights: list[Tensor], batches: Tensor) -> Step:
    """title: Reduce gradients in bfloat16
    pair: {group: ranks, plain: overlapped_gradients}
    saves: half of the bytes of gradient communication
    idea: The hook rounds each bucket to bfloat16, reduces that, and widens the result. Weights and
      optimizer stay in float32.
    cost: Precision, since each gradient keeps 8 significant bits (a relative error of up to 2^-8 from
      rounding, and again in each partial sum), and two conversions per bucket.
    not_when: Communication is hidden by the backward pass, groups are very large (sums lose more), or the
      loss disagrees with that of a run in float32.
    shows: {bytes of all-reduces per step: four per parameter → two per parameter}
    no_gain: two H100s over NVLink, as fast. The float32 form hides its communication behind the backward
      pass, but for the last bucket.
    tips: [communication.low-precision]
    findings: {communication-wide-gradients: 1}
    needs: {ranks: 2}
    proof: {latency: included, precision: bf16}"""
    return _ddp(weights, batches, lambda state, bucket: _in_bfloat16(bucket))
