"""Move data between the host and the device.

    fathom lab run pinned-batches overlapped-transfer one-transfer no-synchronisation

pageable copies through a pinned buffer, pinned_batches directly. in_turn copies and computes alternately,
overlapped_transfer at the same time. many_transfers sends small values one by one, one_transfer together.
layer_by_layer reads a value per layer, no_synchronisation none.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fathom.lab import Draw, normal, traffic


def batches(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    batches = host.integers(0, 256, 4, draw.size(gpu=1 << 24, cpu=1 << 14), dtype=torch.uint8)
    pinned = batches.pin_memory() if draw.device == "cuda" else batches.clone()
    return batches, pinned, draw.normal(4)


def _scaled(there: list[Tensor], scales: Tensor) -> Tensor:
    return torch.stack([batch[::4096].to(scales.dtype) for batch in there]) * scales.unsqueeze(1)


def pageable(batches: Tensor, pinned: Tensor, scales: Tensor) -> Tensor:
    return _scaled([batch.to(scales.device) for batch in batches], scales)


def pinned_batches(batches: Tensor, pinned: Tensor, scales: Tensor) -> Tensor:
    """title: Copy batches from pinned memory
    pair: {group: input, plain: pageable, inputs: batches, work: batches_work}
    saves: half of the link's bandwidth, and the host's wait for the copy
    idea: The driver cannot read pageable memory. It copies it in pieces through a pinned buffer while the
      host waits. Pinned batches are read at the link's full rate, and with non_blocking=True the host
      continues.
    cost: Page-locked memory for the batches in flight, and a copy into it, which pin_memory=True leaves to a
      thread of the loader. This pair has both forms of the batch ready.
    not_when: Batches are a few kilobytes (the copy's latency dominates), the host has little memory, or the
      training thread would pin in each step, which costs more than it saves.
    shows:
      rate of copies from host to device: about half of the link's → near the link's
      time of cudaMemcpyAsync on the host: as long as the copy → some microseconds
    tips: [data.pin-memory]
    findings: {input-pageable-copy: 1}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    return _scaled([batch.to(scales.device, non_blocking=True) for batch in pinned], scales)


batches_work = traffic(1)

CHUNKS, ROWS, WIDTH = 8, 1024, 2048


def chunks(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    chunks = host.normal(CHUNKS, ROWS, WIDTH)
    weight = draw.normal(WIDTH, WIDTH, scale=WIDTH**-0.5)
    return (chunks.pin_memory() if draw.device == "cuda" else chunks), weight


def _worked(chunk: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(chunk @ weight).sum(dim=0)


def in_turn(chunks: Tensor, weight: Tensor) -> Tensor:
    return torch.stack([_worked(chunk.to(weight.device), weight) for chunk in chunks])


@cache
def _copies() -> Any:
    return torch.cuda.Stream()


def _fetched(chunk: Tensor, weight: Tensor) -> tuple[Tensor, Any]:
    with torch.cuda.stream(_copies()):
        return chunk.to(weight.device, non_blocking=True), _copies().record_event()


def overlapped_transfer(chunks: Tensor, weight: Tensor) -> Tensor:
    """title: Overlap transfers with computation
    pair: {group: memory, plain: in_turn, inputs: chunks, work: chunks_work}
    saves: GPU idle time while data arrives
    idea: A copy from pinned memory needs only the copy engine. On another stream, the next chunk arrives
      while the current one is processed, and an event signals its arrival.
    cost: Two buffers on the device, pinned pages on the host, an event per chunk. Time becomes the longer of
      copies and computation instead of their sum.
    not_when: One of the two is far longer than the other, or the source is pageable, since the host stages
      such a copy and waits for it.
    shows:
      ledger, copy from host to device: all of it exposed → the part that computation does not cover
    tips: [data.non-blocking, data.overlap-copy]
    findings: {input-copy-not-overlapped: 1, input-synchronous-copy: 1}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    # Only on a GPU: a processor has nothing to transfer.
    here, results = torch.cuda.current_stream(), []
    _copies().wait_stream(here)
    coming = _fetched(chunks[0], weight)
    for number in range(len(chunks)):
        chunk, there = coming
        if number + 1 < len(chunks):
            coming = _fetched(chunks[number + 1], weight)
        here.wait_event(there)
        chunk.record_stream(here)
        results.append(_worked(chunk, weight))
    return torch.stack(results)


def chunks_work(chunks: Tensor, weight: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * chunks.numel() * WIDTH, "unit": "matmul.fp32"}


COUNT, LENGTH = 64, 32


def small_values(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    return Draw(seed, "cpu").normal(COUNT, LENGTH), draw.normal(LENGTH)


def _used(parts: list[Tensor], weight: Tensor) -> Tensor:
    return torch.stack(parts) @ weight


def many_transfers(values: Tensor, weight: Tensor) -> Tensor:
    return _used([part.clone().to(weight.device) for part in values], weight)


def one_transfer(values: Tensor, weight: Tensor) -> Tensor:
    """title: Send many small values in one transfer
    pair: {group: schedule, plain: many_transfers, inputs: small_values}
    saves: calls of the host, and the latency of each copy
    idea: A copy of a few bytes takes its latency, some microseconds, and a call of the host. Lengths,
      positions and flags that every step needs are packed into one tensor, sent once, and split into views on
      the device.
    cost: Packing on the host, one more copy of the bytes.
    not_when: The tensors are large; then bandwidth is the bottleneck, and packing only copies.
    shows: {copies from host to device: one per tensor → one}
    tips: [scheduling.one-transfer, inference.sampling]
    findings: {host-launch-bound: 2, host-sync-copy: 1}
    proof: {latency: included}"""
    return _used(list(values.clone().to(weight.device).unbind()), weight)


gradients = normal((32, (1 << 18, 512)))
gradients_work = traffic(3)


def layer_by_layer(gradients: Tensor) -> Tensor:
    squares = [float((gradient * gradient).sum()) for gradient in gradients]
    return gradients * (sum(squares) ** -0.5)


def no_synchronisation(gradients: Tensor) -> Tensor:
    """title: Keep statistics on the device
    pair: {group: schedule, plain: layer_by_layer, inputs: gradients, work: gradients_work}
    saves: GPU idle time while the host waits
    idea: Calling `.item()` on every layer's norm makes the host wait for the device, which then waits for new
      launches. Kept as tensors and stacked, the norms are read once at the end, or never.
    cost: None. Each wait would cost the launch latency of the next kernels, and the host's lead.
    not_when: The value decides on the next launch, or the host is so far ahead that memory runs out.
    shows:
      ledger, idle by synchronisation: once per layer → none
    tips: [scheduling.item, frameworks.clip-gradients, inference.sampling]
    findings: {host-sync-item: 1}
    proof: {latency: included, cache: warm}"""
    squares = [(gradient * gradient).sum() for gradient in gradients]
    return gradients * torch.stack(squares).sum().rsqrt()
