"""Shares of ceilings that operators reach on a processor, in the thread's time, which excludes other load.

python -m benchmarks.plan.host_ops          # writes src/fathom/planner/training/host_ops.yaml
python -m benchmarks.plan.host_ops relu …   # measures these kinds alone, and keeps the others

Shapes are none of the GPT example's. Run it on the kind of processor that the plan is for: shares of
arithmetic (`gelu`, `_softmax`) depend on the vector units.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time, thread_time
from typing import Any

import torch
import yaml

import fathom
from fathom.analysis.entries import IDLE
from fathom.analysis.results import Examination

TARGET = Path(__file__).parents[2] / "src" / "fathom" / "planner" / "training" / "host_ops.yaml"
SHAPES = ((160, 384), (100, 500), (250, 200))  # that stay in the second-level cache: arithmetic, not traffic
IMAGES = ((4, 24, 20), (2, 48, 12), (8, 96, 6))  # batch, channels, side
ATTENTION = ((4, 6, 200, 64), (2, 12, 512, 64), (3, 8, 160, 48))  # batch, heads, tokens, head dimension
NEAR = 2**19  # bytes in the second-level cache
REPEATS, BUDGET_S = 6, 0.02
STEPS = 300
HEADER = """# Written by `python -m benchmarks.plan.host_ops`. `kinds`: rate over host.cache; `products`: over
# host.matmul. `call` and `gap`: time of an operator's dispatch, and of Python after it, over host.dispatch,
# for machines whose pace was not measured. `grain`: elements of an operator that torch gives one thread at
# least (at::internal::GRAIN_SIZE). `serial`: operators that run on one thread, because they hold the lock of
# the random generator. `spread`: of the shares' logarithms over shapes.
grain: 32768"""
SERIAL = ("bernoulli_",)

A = torch.ops.aten
Work = Callable[[], object]


def seconds(work: Work) -> float:
    """Return the thread's seconds for one call: the second shortest of several samples."""
    work()
    began = thread_time()
    work()
    count = max(1, int(BUDGET_S / max(thread_time() - began, 1e-7)))
    return sorted(_sampled(work, count) for _ in range(REPEATS))[1]


def _sampled(work: Work, count: int) -> float:
    began = thread_time()
    for _ in range(count):
        work()
    return (thread_time() - began) / count


def kinds(rows: int, columns: int) -> Iterator[tuple[str, int, Work]]:
    """Yield operators with the tensors of this shape that each must move."""
    x, y, z = (torch.rand(rows, columns) + 0.5 for _ in range(3))
    weight = torch.ones(columns)
    _, mean, deviation = A.native_layer_norm(x, [columns], weight, weight, 1e-5)
    logarithms, likely = torch.log_softmax(x, -1), torch.softmax(x, -1)
    norm = (x, y, [columns], mean, deviation, weight, weight, [True, True, True])
    yield "gelu", 2, lambda: A.gelu(x)
    yield "gelu_backward", 3, lambda: A.gelu_backward(x, y)
    yield "silu", 2, lambda: A.silu(x)
    yield "silu_backward", 3, lambda: A.silu_backward(x, y)
    yield "tanh", 2, lambda: A.tanh(x)
    yield "exp", 2, lambda: A.exp(x)
    yield "sqrt", 2, lambda: A.sqrt(x)
    yield "native_layer_norm", 2, lambda: A.native_layer_norm(x, [columns], weight, weight, 1e-5)
    yield "native_layer_norm_backward", 3, lambda: A.native_layer_norm_backward(*norm)
    yield "_softmax", 2, lambda: A._softmax(x, -1, False)
    yield "_softmax_backward_data", 3, lambda: A._softmax_backward_data(y, likely, -1, torch.float32)
    yield "_log_softmax", 2, lambda: A._log_softmax(x, -1, False)
    yield (
        "_log_softmax_backward_data",
        3,
        lambda: A._log_softmax_backward_data(y, logarithms, -1, torch.float32),
    )
    yield "add", 3, lambda: A.add(x, y)
    yield "mul", 3, lambda: A.mul(x, y)
    yield "div", 3, lambda: A.div(x, y)
    yield "lerp_", 3, lambda: A.lerp_(x, y, 0.1)
    yield "addcmul_", 4, lambda: A.addcmul_(x, y, y, value=1e-9)
    yield "addcdiv_", 4, lambda: A.addcdiv_(x, y, z, value=1e-9)
    yield "sum", 1, lambda: A.sum(x, [0])
    yield "bernoulli_", 1, lambda: z.bernoulli_(0.9)
    yield "sigmoid", 2, lambda: A.sigmoid(x)
    yield "clamp_min", 2, lambda: A.clamp_min(x, 0)
    yield "threshold_backward", 3, lambda: A.threshold_backward(y, x, 0)


def batch_norm(batch: int, channels: int, side: int) -> Iterator[tuple[str, int, Work]]:
    """Yield both passes of batch norm over images, with the tensors that each must move."""
    images, gradient = (torch.randn(batch, channels, side, side) for _ in range(2))
    weight = torch.ones(channels)
    running = torch.zeros_like(weight), torch.ones_like(weight)
    _, mean, deviation = A.native_batch_norm(images, weight, weight, *running, True, 0.1, 1e-5)
    norm = (gradient, images, weight, *running, mean, deviation, True, 1e-5, [True, True, True])
    yield (
        "native_batch_norm",
        2,
        lambda: A.native_batch_norm(images, weight, weight, *running, True, 0.1, 1e-5),
    )
    yield "native_batch_norm_backward", 3, lambda: A.native_batch_norm_backward(*norm)


def attention(*shape: int) -> Iterator[tuple[str, float, Work]]:
    """Yield both passes of fused attention with their causal FLOPs."""
    query, key, value = (torch.randn(*shape) for _ in range(3))
    name = "_scaled_dot_product_flash_attention_for_cpu"
    out, sums = getattr(A, name)(query, key, value, 0.0, True)
    batch, heads, tokens, depth = shape
    flops = 2.0 * batch * heads * tokens * tokens * depth
    yield name, flops, lambda: getattr(A, name)(query, key, value, 0.0, True)
    backward = getattr(A, f"{name}_backward")
    yield f"{name}_backward", 2.5 * flops, lambda: backward(out, query, key, value, out, sums, 0.0, True)


def small_step() -> Work:
    """Return the step of a network so small that its calls take all of its time."""
    layers = [part for _ in range(6) for part in _layer()]
    network, x = torch.nn.Sequential(*layers), torch.randn(4, 8)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step() -> None:
        network(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _layer() -> list[torch.nn.Module]:
    return [torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Dropout(0.1)]


def overheads() -> tuple[float, float]:
    """Return the seconds of the small step's average call inside operators, and of Python after it.

    The ledger of a recording divides the thread's time: other load lengthens both parts alike.
    """
    step, taken = small_step(), []
    for _ in range(STEPS):
        began = process_time()
        step()
        taken.append(process_time() - began)
    with TemporaryDirectory() as folder:
        rows = _recorded(Path(folder) / "small.fathom").devices[0].ledger
    calls = sum(row.count or 0.0 for row in rows)
    idle = sum(row.ms for row in rows if row.entry.startswith(IDLE)) / sum(row.ms for row in rows)
    each = statistics.median(taken) / calls
    return (1 - idle) * each, idle * each


def _recorded(path: Path) -> Examination:
    own = [sys.executable, "-m", "benchmarks.plan.host_ops", "step"]
    words = [sys.executable, "-m", "fathom", "run", "-q", "--no-measure", "-o", str(path), "--", *own]
    subprocess.run(words, check=True)
    return fathom.open(path).examine()


def table(only: Sequence[str] = ()) -> dict[str, Any]:
    """Return the data file's content; with `only`, the shares of these kinds alone."""
    torch.set_num_threads(1)
    near, number = torch.rand(NEAR // 12), torch.zeros(1)
    out, square = torch.empty_like(near), torch.randn(1024, 1024)
    cache = 12 * near.numel() / seconds(lambda: torch.add(near, near, alpha=0.5, out=out))
    matmul = 2.0 * 1024**3 / seconds(lambda: torch.mm(square, square))
    products = chain.from_iterable(attention(*shape) for shape in ATTENTION)
    streamed = chain(
        ((n, 4.0 * c * r * k, w) for r, k in SHAPES for n, c, w in kinds(r, k)),
        ((n, 4.0 * c * b * k * s**2, w) for b, k, s in IMAGES for n, c, w in batch_norm(b, k, s)),
    )
    seen = {"kinds": _seen(streamed, cache, only), "products": _seen(products, matmul, only)}
    shares = {
        group: {name: statistics.median(values) for name, values in known.items()}
        for group, known in seen.items()
    }
    if only:
        return shares
    dispatch, (call, gap) = seconds(lambda: number.add_(number)), overheads()
    return {"call": call / dispatch, "gap": gap / dispatch, "spread": _spread(seen["kinds"]), **shares}


def _seen(
    rows: Iterator[tuple[str, float, Work]], ceiling: float, only: Sequence[str] = ()
) -> dict[str, list[float]]:
    seen: dict[str, list[float]] = {}
    for name, amount, work in rows:
        if only and name not in only:
            continue
        seen.setdefault(name, []).append(amount / seconds(work) / ceiling)
    return seen


def _spread(seen: dict[str, list[float]]) -> float:
    """Return the standard deviation of the shares' logarithms within the kinds."""
    return statistics.mean(statistics.variance(map(math.log, values)) for values in seen.values()) ** 0.5


def _joined(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**known, **{group: {**known[group], **new[group]} for group in ("kinds", "products")}}


def main() -> None:
    """Write the data file, or some of its kinds; with `step`, run the small step, to be recorded."""
    if sys.argv[1:] == ["step"]:
        torch.set_num_threads(1)
        step = small_step()
        for _ in range(5 * STEPS):
            step()
        return
    only = sys.argv[1:]
    shares = _joined(yaml.safe_load(TARGET.read_text()), table(only)) if only else table()
    lines = [HEADER, *(f"{name}: {shares[name]:.3f}" for name in ("call", "gap", "spread"))]
    lines.append(f"serial: [{', '.join(SERIAL)}]")
    for group in ("kinds", "products"):
        lines += [f"{group}:", *(f"  {name}: {share:.3f}" for name, share in sorted(shares[group].items()))]
    TARGET.write_text("\n".join(lines) + "\n")
    print(TARGET.read_text())


if __name__ == "__main__":
    main()
