"""Launch many small kernels.

    fathom lab run cuda-graph reduce-overhead graphed-training graphed-decode streams

eager, training and decoding launch every kernel from Python. cuda_graph, graphed_training and graphed_decode
replay a captured graph; reduce_overhead lets torch.compile capture it. streams runs two independent chains
side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, traffic

LAYERS, WIDTH = 24, 256
Given = tuple[Tensor, Tensor, Tensor]


def _captured(work: Callable[[], Any]) -> tuple[Any, Any]:
    """Capture `work`; return the graph and its result. Three calls before it allocate workspaces."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


# A stack of layers
def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    return draw.normal(32, WIDTH), draw.normal(LAYERS, WIDTH, WIDTH, scale=WIDTH**-0.5)


def work(x: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(x) * weights.numel(), "bytes": weights.nbytes, "unit": "matmul.fp32"}


def _layers(x: Tensor, weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + F.gelu(F.layer_norm(x @ weight, (WIDTH,)))
    return x


def eager(x: Tensor, weights: Tensor) -> Tensor:
    return _layers(x, weights)


class _Layers:
    """A captured graph of the layers, with private buffers."""

    def __init__(self, *given: Tensor) -> None:
        self.given = [tensor.clone() for tensor in given]
        self.graph, self.result = _captured(lambda: _layers(*self.given))

    def __call__(self, *given: Tensor) -> Tensor:
        for mine, theirs in zip(self.given, given, strict=True):
            mine.copy_(theirs)
        self.graph.replay()
        copied: Tensor = self.result.clone()
        return copied


_graphs: dict[str, Any] = {}


def cuda_graph(x: Tensor, weights: Tensor) -> Tensor:
    """title: Replay a chain of small kernels as a CUDA graph
    pair: {group: schedule, plain: eager}
    saves: host time and launch latency
    idea: A chain of kernels of a few microseconds waits for the host, since Python, the dispatcher and the
      driver take longer for each than the device does. A graph is captured once, and one call replays all of
      it.
    cost: About 1 µs per node on the device instead of 5 to 10 µs per call on the host, copies of the inputs
      into the graph's buffers and of the result out of them, and buffers that stay allocated.
    not_when: The device is busy all the time, shapes or control flow change between calls, or the host needs
      a value in between.
    shows:
      ledger, idle by dispatching: most of the call → next to none
      cudaLaunchKernel calls: one per kernel → one cudaGraphLaunch
    tips: [scheduling.cuda-graph]
    findings: {host-launch-bound: 1, host-python: 1, host-graph-sizes: 2}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    # Only on a GPU: the processor has no graphs.
    if "layers" not in _graphs:
        _graphs["layers"] = _Layers(x, weights)
    return _graphs["layers"](x, weights)


@cache
def _compiled(mode: str) -> Any:
    return torch.compile(_layers, mode=mode)


def compiled(x: Tensor, weights: Tensor) -> Tensor:
    return _compiled("default")(x, weights)


def reduce_overhead(x: Tensor, weights: Tensor) -> Tensor:
    """title: Let torch.compile replay CUDA graphs
    pair: {group: framework, plain: compiled, reference: eager}
    saves: host time and launch latency
    idea: Compiled kernels are still launched one by one. In the mode reduce-overhead they are captured into
      CUDA graphs, with buffers that the compiler manages, and each call is one replay.
    cost: Inputs are copied into the graph's buffers, which stay allocated. A result is valid only until the
      next call and must be cloned to be kept.
    not_when: Kernels are long, shapes change (each is captured anew), or inputs are large and move between
      calls.
    shows: {cudaGraphLaunch calls: none → one per call}
    tips: [scheduling.reduce-overhead]
    findings: {host-launch-bound: 6, framework-not-compiled: 2, host-graph-sizes: 3}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    # Only on a GPU: the mode is about CUDA graphs.
    torch.compiler.cudagraph_mark_step_begin()
    return _compiled("reduce-overhead")(x, weights).clone()


# A training step
STEPS, RATE = 8, 0.05


def batches(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    weights = draw.normal(12, 128, 128, scale=128**-0.5)
    return draw.normal(STEPS, 64, 128), draw.normal(STEPS, 64, 128), weights


def _step(batch: Tensor, target: Tensor, weights: Tensor) -> None:
    """One step of gradient descent on `weights`, in place."""
    x = batch
    for weight in weights:
        x = torch.tanh(x @ weight)
    (gradient,) = torch.autograd.grad(F.mse_loss(x, target), weights)
    with torch.no_grad():
        weights.sub_(gradient, alpha=RATE)


def training(batches: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    weights = weights.clone().requires_grad_()
    for batch, target in zip(batches, targets, strict=True):
        _step(batch, target, weights)
    return weights.detach()


class _Training:
    """A captured graph of one training step, with private buffers."""

    def __init__(self, batch: Tensor, target: Tensor, weights: Tensor) -> None:
        self.batch, self.target = batch.clone(), target.clone()
        self.weights = weights.clone().requires_grad_()
        self.graph, _ = _captured(lambda: _step(self.batch, self.target, self.weights))

    def __call__(self, batches: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        self.weights.detach().copy_(weights)
        for batch, target in zip(batches, targets, strict=True):
            self.batch.copy_(batch)
            self.target.copy_(target)
            self.graph.replay()
        return self.weights.detach().clone()


def graphed_training(batches: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """title: Replay a whole training step as a CUDA graph
    pair: {group: framework, plain: training, inputs: batches, work: training_work}
    saves: host time and launch latency
    idea: Forward, backward and optimizer of a small model are hundreds of launches of a few microseconds.
      Captured once, the step is one replay, and new batches are copied into the buffers that the graph reads.
    cost: A private pool that keeps all activations allocated, a capturable optimizer, and no decision by the
      host within the step.
    not_when: The device is busy all the time, the loss scaler or clipping decides on the host, or shapes
      change.
    shows:
      ledger, idle by dispatching: most of the step → next to none
    tips: [scheduling.graphed-training]
    findings: {host-launch-bound: 5, host-python: 3}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    # Only on a GPU: the processor has no graphs.
    if "training" not in _graphs:
        _graphs["training"] = _Training(batches[0], targets[0], weights)
    return _graphs["training"](batches, targets, weights)


def training_work(batches: Tensor, targets: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * batches.shape[0] * batches.shape[1] * weights.numel(), "unit": "matmul.fp32"}


# Tokens of one request
HEADS, EXTENT, TOKENS = 8, 256, 16


def prompt(seed: int, device: str | None = None) -> Given:
    """Return the prompt's last state, weights of all layers, and a cache that the prompt fills to half."""
    draw = Draw(seed, device)
    cache = draw.normal(12, 2, HEADS, EXTENT, 512 // HEADS)
    cache[:, :, :, EXTENT // 2 :] = 0
    return draw.normal(1, 512), draw.normal(12, 4, 512, 512, scale=512**-0.5), cache


def _token(x: Tensor, weights: Tensor, cache: Tensor, position: Tensor) -> Tensor:
    """Compute one token through all layers; write its keys and values into `cache` at `position`."""
    there = (torch.arange(EXTENT, device=x.device) <= position).view(1, EXTENT)
    for (of_q, of_k, of_v, of_out), layer in zip(weights, cache, strict=True):
        normed = F.layer_norm(x, (512,))
        q, k, v = ((normed @ weight).view(HEADS, 1, -1) for weight in (of_q, of_k, of_v))
        layer[0].index_copy_(1, position, k)
        layer[1].index_copy_(1, position, v)
        attended = F.scaled_dot_product_attention(q, layer[0], layer[1], attn_mask=there)
        x = x + attended.view(1, 512) @ of_out
    return x


def decoding(x: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
    cache, made = cache.clone(), []
    position = torch.tensor([EXTENT // 2], device=x.device)
    for _ in range(TOKENS):
        x = _token(x, weights, cache, position)
        position += 1
        made.append(x)
    return torch.cat(made)


class _Decoding:
    """A captured graph that decodes one token, with private buffers, and advances the position."""

    def __init__(self, x: Tensor, weights: Tensor, cache: Tensor) -> None:
        self.x, self.weights, self.cache = x.clone(), weights.clone(), cache.clone()
        self.position = torch.zeros(1, dtype=torch.long, device=x.device)
        self.graph, _ = _captured(self._advance)

    def _advance(self) -> None:
        self.x.copy_(_token(self.x, self.weights, self.cache, self.position))
        self.position.add_(1)

    def __call__(self, x: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
        for mine, theirs in ((self.x, x), (self.weights, weights), (self.cache, cache)):
            mine.copy_(theirs)
        self.position.fill_(EXTENT // 2)
        made = []
        for _ in range(TOKENS):
            self.graph.replay()
            made.append(self.x.clone())
        return torch.cat(made)


def graphed_decode(x: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
    """title: Replay the decoding of a token as a CUDA graph
    pair: {group: framework, plain: decoding, inputs: prompt, work: decoding_work}
    saves: host time and launch latency
    idea: A token of one request takes some dozens of kernels of a few microseconds in each layer, launched
      one by one. With a cache of fixed extent, and the position in a tensor that each token advances, every
      token is the same sequence of kernels over the same memory. It is captured once and replayed for each.
    cost: Attention over the whole extent of the cache, masked beyond the position, buffers that stay
      allocated, and a graph per batch size.
    not_when: Batches are so large that the device is busy all the time, the cache's extent is far beyond the
      usual length (capture several extents), or the host decides on the next step by the token's value.
    shows:
      ledger, idle by dispatching: most of the step → next to none
      cudaGraphLaunch calls: none → one per token
    tips: [inference.graphed-decode, inference.graph-sizes]
    findings: {host-launch-bound: 4, host-python: 2, host-graph-sizes: 1}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    # Only on a GPU: the processor has no graphs.
    if "decoding" not in _graphs:
        _graphs["decoding"] = _Decoding(x, weights, cache)
    return _graphs["decoding"](x, weights, cache)


decoding_work = traffic(0, TOKENS, TOKENS)


# Two independent chains
DEPTH = 12
ROWS, COLUMNS = 48, 32768  # one block per row, so 48 of 132 multiprocessors are busy


def two_chains(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    return draw.normal(2, ROWS, COLUMNS), draw.normal(2, COLUMNS), draw.normal(2, COLUMNS)


def _chain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    for _ in range(DEPTH):
        x = F.layer_norm(x, (COLUMNS,), weight, bias)
    return x


@cache
def _side() -> Any:
    return torch.cuda.Stream()


def one_stream(x: Tensor, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    return _chain(x[0], weights[0], biases[0]), _chain(x[1], weights[1], biases[1])


def streams(x: Tensor, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    """title: Run independent chains on two streams
    pair: {group: schedule, plain: one_stream, inputs: two_chains, work: chains_work}
    saves: idle multiprocessors beside a small kernel
    idea: On one stream, kernels that fill a part of the chip run one after another even if they are
      independent. On two streams the device runs them side by side.
    cost: An event each way, host time to issue both, and memory that the allocator cannot share between the
      streams without record_stream or a join before it is freed.
    not_when: Each kernel fills the chip, or both chains need the same bandwidth. If the host is the
      bottleneck, use CUDA graphs instead. Two chains of products of 512 by 512 took 1.14 times as long on two
      streams of an H200.
    shows:
      sm__ctas_active.avg.pct_of_peak_sustained_elapsed: a part of the chip → up to twice that
      time in which two kernels run: none → most of it
    tips: [scheduling.streams]
    no_finding: a recording does not show whether kernels on one stream are independent.
    needs: {gpu: true}
    proof: {cache: warm}"""
    # Only on a GPU: the processor has no streams.
    here = torch.cuda.current_stream()
    _side().wait_stream(here)
    with torch.cuda.stream(_side()):
        second = _chain(x[1], weights[1], biases[1])
    first = _chain(x[0], weights[0], biases[0])
    here.wait_stream(_side())
    second.record_stream(here)
    return first, second


chains_work = traffic(2 * DEPTH, DEPTH, DEPTH)
