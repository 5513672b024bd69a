"""FLOPs of a training token by stated conventions, and the translation between those of reports."""

from __future__ import annotations

from dataclasses import dataclass

from fathom.errors import BadInputError
from fathom.planner.workload.model import Attention, Block, Latent, Model, Recurrent, matmuls


@dataclass(frozen=True)
class Convention:
    """A rule by which reports count FLOPs.

    `causal` is the share of the square of attention that counts: 0.5 if it is causal, 1 in many papers.
    `recomputed` counts the second forward pass of activation recomputation (HFU). `logits` counts the output
    matrix, `embedding` the lookup as if it were a product (6 N of all parameters).
    """

    name: str
    about: str
    causal: float = 0.5
    recomputed: bool = False
    logits: bool = True
    embedding: bool = False


CONVENTIONS = {
    row.name: row
    for row in (
        Convention("model", "model FLOPs, causal attention halved (Megatron-Bridge since 2025)"),
        Convention("full", "model FLOPs, attention not halved (Megatron-LM, NeMo, PaLM's MFU)", causal=1.0),
        Convention("hfu", "with full recomputation, attention not halved (Megatron 2021)", 1.0, True),
        Convention(
            "6n", "6 N T, and attention not halved; N has the embedding (MosaicML)", 1.0, embedding=True
        ),
        Convention("6n-only", "6 N T without attention (Kaplan, Chinchilla)", 0.0, embedding=True),
    )
}


def convention(name: str) -> Convention:
    """Return the convention called `name`; raises BadInputError."""
    if name not in CONVENTIONS:
        raise BadInputError(f"{name!r} is not a FLOP convention; choose one of {', '.join(CONVENTIONS)}.")
    return CONVENTIONS[name]


def flops_per_token(model: Model, seq: int, counted: Convention) -> float:
    """Return the FLOPs of training one token: forward, and backward at twice that."""
    forward = sum(
        block.count * layer_flops(block, model.hidden, seq, counted.causal) for block in model.blocks
    )
    head = 2.0 * model.vocab * model.hidden * counted.logits
    if counted.embedding and not model.tied:
        head += 2.0 * model.vocab * model.hidden
    passes = 4 if counted.recomputed else 3
    return passes * forward + 3 * head


def layer_flops(block: Block, hidden: int, seq: int, causal: float = 0.5) -> float:
    """Return the forward FLOPs of one layer for one token."""
    return sum(m.flops for m in matmuls(block, hidden)) + mixing_flops(block, seq, causal)


def mixing_flops(block: Block, seq: int, causal: float = 0.5) -> float:
    """Return the forward FLOPs per token of mixing over the sequence, without the projections."""
    mixer = block.mixer
    if isinstance(mixer, Recurrent):
        return 6.0 * mixer.state_elements
    return 2.0 * mixer.heads * (mixer.qk_dim + mixer.value_dim) * seen(mixer, seq, causal)


def seen(mixer: Attention | Latent, seq: int, causal: float = 0.5) -> float:
    """Return how many tokens one token attends to on average; `causal` is 0.5, or 1 to count the square."""
    if mixer.window is None or mixer.window >= seq:
        return seq * causal
    if causal == 1.0:  # by convention
        return mixer.window
    return mixer.window * (1 - 0.5 * mixer.window / seq)


def translate(model: Model, seq: int, value: float, counted: str, wanted: str) -> float:
    """Return an MFU or a rate in FLOP/s, reported by one convention, in another one."""
    before = flops_per_token(model, seq, convention(counted))
    return value * flops_per_token(model, seq, convention(wanted)) / before
