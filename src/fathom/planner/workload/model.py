"""A model as blocks of layers, each with a mixer over the sequence and an MLP over features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

COLUMN, ROW, UNSPLIT = "column", "row", "unsplit"  # how tensor parallelism splits a weight


@dataclass(frozen=True)
class Attention:
    """Softmax attention: multi-head, grouped or multi-query. `window` limits how far back a token sees.

    `sinks`: each head has a learned sink, for which few fused kernels exist.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    sinks: bool = False

    @property
    def qk_dim(self) -> int:
        """Return the width of one head's query."""
        return self.head_dim

    @property
    def value_dim(self) -> int:
        """Return the width of one head's value."""
        return self.head_dim

    @property
    def kv_elements(self) -> int:
        """Return the elements that one token adds to the KV cache of a layer."""
        return 2 * self.kv_heads * self.head_dim

    def weights(self, hidden: int) -> Iterator[Matmul]:
        """Yield the projections."""
        inner = self.heads * self.head_dim
        yield Matmul("qkv", hidden, inner + 2 * self.kv_heads * self.head_dim, COLUMN)
        yield Matmul("attention out", inner, hidden, ROW)


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA): keys and values come from one compressed vector a token."""

    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    window: int | None = None

    @property
    def qk_dim(self) -> int:
        """Return the width of one head's query."""
        return self.nope_dim + self.rope_dim

    @property
    def kv_heads(self) -> int:
        """Return the heads of keys, which equal those of queries once they are expanded."""
        return self.heads

    @property
    def kv_elements(self) -> int:
        """Return the elements that one token adds to the KV cache of a layer."""
        return self.kv_rank + self.rope_dim

    def weights(self, hidden: int) -> Iterator[Matmul]:
        """Yield the projections."""
        if self.q_rank:
            yield Matmul("q down", hidden, self.q_rank, UNSPLIT)
        yield Matmul("q up", self.q_rank or hidden, self.heads * self.qk_dim, COLUMN)
        yield Matmul("kv down", hidden, self.kv_rank + self.rope_dim, UNSPLIT)
        yield Matmul("kv up", self.kv_rank, self.heads * (self.nope_dim + self.value_dim), COLUMN)
        yield Matmul("attention out", self.heads * self.value_dim, hidden, ROW)


@dataclass(frozen=True)
class Recurrent:
    """A linear-time mixer (Mamba, gated DeltaNet); its state has `heads` × dim × `state` elements."""

    heads: int
    head_dim: int
    state: int
    groups: int = 1
    window: int | None = None

    @property
    def kv_elements(self) -> int:
        """Return 0: the state does not grow with the sequence."""
        return 0

    @property
    def state_elements(self) -> int:
        """Return the size of one sequence's state in a layer, in elements."""
        return self.heads * self.head_dim * self.state

    def weights(self, hidden: int) -> Iterator[Matmul]:
        """Yield the projections: gate and input, the state's keys and queries, and the output."""
        inner = self.heads * self.head_dim
        yield Matmul("recurrent in", hidden, 2 * inner + 2 * self.groups * self.state + self.heads, COLUMN)
        yield Matmul("recurrent out", inner, hidden, ROW)


@dataclass(frozen=True)
class Dense:
    """An MLP; `gated` ones (SwiGLU, GeGLU) have two matrices of width `ffn` before the product."""

    ffn: int
    gated: bool = True

    def weights(self, hidden: int) -> Iterator[Matmul]:
        """Yield the projections."""
        yield Matmul("mlp up", hidden, self.ffn * (2 if self.gated else 1), COLUMN)
        yield Matmul("mlp down", self.ffn, hidden, ROW)


@dataclass(frozen=True)
class Experts:
    """`experts` MLPs of width `ffn`, of which each token visits `active`, and perhaps a shared one."""

    experts: int
    active: int
    ffn: int
    shared_ffn: int = 0
    gated: bool = True

    def weights(self, hidden: int) -> Iterator[Matmul]:
        """Yield the router, the experts' projections, and those of the shared expert."""
        wide = 2 if self.gated else 1
        share = self.active / self.experts
        yield Matmul("router", hidden, self.experts, UNSPLIT)
        yield Matmul("experts up", hidden, self.ffn * wide, COLUMN, self.experts, share)
        yield Matmul("experts down", self.ffn, hidden, ROW, self.experts, share)
        if self.shared_ffn:
            yield Matmul("shared expert up", hidden, self.shared_ffn * wide, COLUMN)
            yield Matmul("shared expert down", self.shared_ffn, hidden, ROW)


Mixer = Attention | Latent | Recurrent


@dataclass(frozen=True)
class Matmul:
    """A weight of `count` matrices k × n; each gets `share` of the tokens."""

    name: str
    k: int
    n: int
    split: str
    count: int = 1
    share: float = 1.0

    @property
    def parameters(self) -> int:
        """Return the number of weights."""
        return self.k * self.n * self.count

    @property
    def flops(self) -> float:
        """Return the forward FLOPs for one token of the model."""
        return 2.0 * self.k * self.n * self.count * self.share


@dataclass(frozen=True)
class Block:
    """`count` equal layers."""

    count: int
    mixer: Mixer
    mlp: Dense | Experts

    @property
    def is_moe(self) -> bool:
        """Return whether the layers are mixtures of experts."""
        return isinstance(self.mlp, Experts)


@dataclass(frozen=True)
class Vision:
    """A vision encoder in front of the language model: `tokens` patches an image, merged `merge` to one."""

    blocks: tuple[Block, ...]
    hidden: int
    patch: int = 14
    merge: int = 4


@dataclass(frozen=True)
class Model:
    """A decoder: embedding, blocks of layers, and the output matrix."""

    name: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied: bool = False
    positions: int = 0  # learned position embeddings
    predicted: int = 0  # extra layers that predict further tokens (MTP)
    vision: Vision | None = None
    source: str = ""
    context: int | None = None  # the most tokens of a sequence, where the configuration states it
    repository: str = ""  # on Hugging Face, which engines load by name

    @property
    def layers(self) -> int:
        """Return the number of layers of the decoder."""
        return sum(block.count for block in self.blocks)

    @property
    def is_moe(self) -> bool:
        """Return whether any layer is a mixture of experts."""
        return any(block.is_moe for block in self.blocks)

    @cached_property
    def parameters(self) -> int:
        """Return all parameters, without those of norms and biases (below 0.1 %)."""
        heads = 1 if self.tied else 2
        return _weights(self.blocks, self.hidden) + self.embedding * heads + self._vision + self._positions

    @cached_property
    def active_parameters(self) -> int:
        """Return the parameters that one token visits."""
        idle = sum(
            matmul.parameters * (1 - matmul.share) * block.count
            for block in self.blocks
            for matmul in matmuls(block, self.hidden)
        )
        return round(self.parameters - idle)

    @property
    def embedding(self) -> int:
        """Return the parameters of the token embedding."""
        return self.vocab * self.hidden

    @property
    def _positions(self) -> int:
        return self.positions * self.hidden

    @property
    def _vision(self) -> int:
        return _weights(self.vision.blocks, self.vision.hidden) if self.vision else 0

    def kv_elements(self, tokens: int) -> int:
        """Return the KV cache of one sequence of `tokens`, in elements: windows limit it."""
        return sum(
            block.count * block.mixer.kv_elements * min(tokens, block.mixer.window or tokens)
            for block in self.blocks
        )


def matmuls(block: Block, hidden: int) -> list[Matmul]:
    """Return the weights of one layer of a block, in forward order."""
    return [*block.mixer.weights(hidden), *block.mlp.weights(hidden)]


def _weights(blocks: tuple[Block, ...], hidden: int) -> int:
    return sum(block.count * sum(m.parameters for m in matmuls(block, hidden)) for block in blocks)
