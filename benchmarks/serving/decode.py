"""Share of the memory's bandwidth that a decode of one request reaches, plain and with techniques of the lab.

    fathom machine measure --only hbm --json > machine.json
    python benchmarks/serving/decode.py --machine machine.json [--out FILE]

The model has the shapes of Llama 3 8B with random weights, a context of 2,048 tokens and one request. A token
has to read all weights and the cache: the rate is their bytes over the time of a step.
`eager` launches op by op. The others replay a CUDA graph (graphed-decode): of the same step, of the compiled
step (compiled-fusion), of the compiled step with the keys of a head in PARTS (split-keys), and of the latter
with products chosen by timing (max-autotune). `equal_tokens` counts the first tokens that `eager` chose too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

DEPTH, WIDTH, HEADS, SHARED, INNER, WORDS, CONTEXT = 32, 4096, 32, 8, 14336, 128_256, 2048
HEAD = WIDTH // HEADS
KEYS = SHARED * HEAD  # width of the keys, and of the values
PARTS = 16  # of a head's keys
STEPS, WARM = 50, 5
Step = Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """Weights and cache of a layer."""

    into: Tensor  # queries, keys and values
    out: Tensor
    gates: Tensor  # gate and up
    down: Tensor
    cache: Tensor  # keys and values by head and position


class Model(NamedTuple):
    """Random weights of the model."""

    words: Tensor
    layers: list[Layer]
    head: Tensor

    @property
    def read_bytes(self) -> int:
        """The bytes that a token has to read; of the embedding only one row."""
        return sum(part.nbytes for layer in self.layers for part in layer) + self.head.nbytes


def model() -> Model:
    """Return the model, on the GPU in bfloat16."""
    torch.manual_seed(0)

    def drawn(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * columns**-0.5

    layers = [
        Layer(
            drawn(WIDTH + 2 * KEYS, WIDTH),
            drawn(WIDTH, WIDTH),
            drawn(2 * INNER, WIDTH),
            drawn(WIDTH, INNER),
            drawn(2 * SHARED * CONTEXT, HEAD).view(2, 1, SHARED, CONTEXT, HEAD),
        )
        for _ in range(DEPTH)
    ]
    return Model(drawn(WORDS, WIDTH), layers, drawn(WORDS, WIDTH))


def at_once(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the attention of the queries of a token, which are rows of one product for each key head."""
    return F.scaled_dot_product_attention(query, keys, values)


def in_parts(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the same from parts of the keys, each with the logarithm of its sum of weights."""
    parts = [part.view(SHARED, PARTS, -1, HEAD).transpose(0, 1) for part in (keys, values)]
    attend = torch.ops.aten._scaled_dot_product_flash_attention
    results, sums = attend(query.expand(PARTS, -1, -1, -1).contiguous(), *parts)[:2]
    shares = torch.softmax(sums[..., : query.shape[2]], dim=0).unsqueeze(-1)
    return (shares * results).sum(0, keepdim=True).to(query.dtype)


def token_after(known: Model, attend: Callable[[Tensor, Tensor, Tensor], Tensor] = at_once) -> Step:
    """Return a function from a token (1,) to the next one; it writes the last place of the cache."""

    def normed(row: Tensor) -> Tensor:
        return F.rms_norm(row, (WIDTH,))

    def attended(row: Tensor, layer: Layer) -> Tensor:
        query, key, value = F.linear(row, layer.into).split([WIDTH, KEYS, KEYS], dim=-1)
        keys, values = layer.cache
        keys[:, :, -1] = key.view(1, SHARED, HEAD)
        values[:, :, -1] = value.view(1, SHARED, HEAD)
        grouped = query.view(1, SHARED, HEADS // SHARED, HEAD)
        return F.linear(attend(grouped, keys, values).reshape(1, WIDTH), layer.out)

    def step(token: Tensor) -> Tensor:
        row = known.words[token]
        for layer in known.layers:
            row = row + attended(normed(row), layer)
            gate, up = F.linear(normed(row), layer.gates).chunk(2, dim=-1)
            row = row + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(normed(row), known.head).argmax(dim=-1)

    return step


def graphed(step: Step) -> Step:
    """Return the step as a CUDA graph."""
    token, stream = torch.zeros(1, dtype=torch.int64, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(token)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        following = step(token)

    def replay(given: Tensor) -> Tensor:
        token.copy_(given)
        graph.replay()
        return following

    return replay


def generate(step: Step) -> tuple[list[float], list[int]]:
    """Return the ms of each step, and the tokens."""
    token = torch.zeros(1, dtype=torch.int64, device="cuda")
    marks, tokens = [torch.cuda.Event(enable_timing=True)], []
    marks[0].record()
    for _ in range(WARM + STEPS):
        token = step(token).clone()
        tokens.append(token)
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks[WARM:], marks[WARM + 1 :], strict=False)]
    return times, [int(token) for token in tokens]


def judged(form: Step, known: Model, ceiling: float, first: list[int]) -> dict[str, object]:
    """Return ms of a step with quartiles, the share of the ceiling, and how many tokens are those of `first`.

    An empty `first` takes the tokens.
    """
    times, tokens = generate(form)
    first += [] if first else tokens
    low, ms, high = statistics.quantiles(times, n=4)
    pairs = enumerate(zip(tokens, first, strict=True))
    same = next((n for n, (mine, theirs) in pairs if mine != theirs), len(tokens))
    return {
        "ms": [round(value, 4) for value in (ms, low, high)],
        "of_ceiling": round(known.read_bytes / ms * 1e3 / ceiling, 4),
        "equal_tokens": f"{same} of {len(tokens)}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--machine", type=Path, required=True, help="machine file with the ceiling hbm.read")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ceilings = {row["id"]: row["value"] for row in json.loads(options.machine.read_text())["ceilings"]}
    known = model()
    plain, split = token_after(known), token_after(known, in_parts)
    forms: dict[str, Callable[[], Step]] = {
        "eager": lambda: plain,
        "graphed": lambda: graphed(plain),
        "compiled": lambda: graphed(torch.compile(plain)),
        "keys in parts": lambda: graphed(torch.compile(split)),
        "autotuned": lambda: graphed(torch.compile(split, mode="max-autotune-no-cudagraphs")),
    }
    result: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "bytes": known.read_bytes,
        "hbm_read": ceilings["hbm.read"],
    }
    first: list[int] = []
    with torch.inference_mode():
        for name, form in forms.items():
            result[name] = judged(form(), known, ceilings["hbm.read"], first)
            text = json.dumps(result, indent=1)
            if options.out:
                options.out.write_text(text + "\n")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
