"""The model of `speech.py`: an encoder over frames and a decoder over words that attends to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

MELS, HOP, STACK = 80, 160, 2  # numbers a frame, samples a frame, frames that the encoder takes at once
Normalise = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Size:
    batch: int
    frames: int
    words: int
    spoken: int  # words that the tokenizer knows
    width: int
    heads: int
    encoder: int
    decoder: int

    @property
    def samples(self) -> int:
        return self.frames * HOP

    def vocabulary(self, fault: str) -> int:
        """Rows of the embedding: a round number of them."""
        return self.spoken if fault == "vocabulary" else -(-self.spoken // 128) * 128


def add_norm(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The sum, and its layer norm."""
    total = x + more.to(x.dtype)
    return total, F.layer_norm(total.float(), weight.shape, weight, bias).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, width: int, function: Normalise) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.function = function

    def forward(self, x: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        return self.function(x, more, self.weight, self.bias)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Of `x` to `source`, where the mask that is added to the scores lets it."""
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
        both = self.key_value(source).view(batch, source.shape[1], 2, self.heads, -1)
        k, v = both.transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Self-attention, attention to what was heard in a decoder, and a feed-forward part.

    What a part adds is handed on to the next norm, which adds it.
    """

    def __init__(self, width: int, heads: int, decodes: bool, normalise: Normalise) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(width, normalise) for _ in range(3 if decodes else 2))
        self.own = Attention(width, heads)
        self.cross = Attention(width, heads) if decodes else None
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, more: Tensor, mask: Tensor | None, heard: Tensor | None = None):
        x, h = self.norms[0](x, more)
        more = self.own(h, h, mask, causal=heard is not None and mask is None)
        if heard is not None:
            x, h = self.norms[1](x, more)
            more = self.cross(h, heard)
        x, h = self.norms[-1](x, more)
        return x, self.narrow(F.gelu(self.widen(h)))


class Stack(nn.Module):
    """Layers, and the norm behind the last one."""

    def __init__(self, depth: int, width: int, heads: int, decodes: bool, normalise: Normalise) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads, decodes, normalise) for _ in range(depth))
        self.norm = Norm(width, normalise)
        self.recompute = False

    def forward(self, x: Tensor, more: Tensor, mask: Tensor | None, heard: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            if self.recompute:
                x, more = checkpoint(layer, x, more, mask, heard, use_reentrant=False)
            else:
                x, more = layer(x, more, mask, heard)
        return self.norm(x, more)[1]


class Recogniser(nn.Module):
    def __init__(self, size: Size, vocabulary: int, normalise: Normalise) -> None:
        super().__init__()
        width, heads = size.width, size.heads
        self.stem = nn.Sequential(nn.Linear(STACK * MELS, width), nn.GELU(), nn.Linear(width, width))
        self.words = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.heard_places = nn.Parameter(0.02 * torch.randn(size.frames // STACK, width))
        self.word_places = nn.Parameter(0.02 * torch.randn(size.words, width))
        self.encoder = Stack(size.encoder, width, heads, False, normalise)
        self.decoder = Stack(size.decoder, width, heads, True, normalise)

    def forward(self, features: Tensor, words: Tensor, masks: tuple[Tensor | None, Tensor | None]) -> Tensor:
        """Logits of (batch x words, vocabulary)."""
        frames = self.stem(features.unflatten(1, (-1, STACK)).flatten(2))
        heard = self.encoder(frames, self.heard_places, masks[0])
        said = self.words(words).to(heard.dtype)
        meant = self.decoder(said, self.word_places, masks[1], heard)
        return F.linear(meant, self.words.weight).flatten(0, 1)


def dense_masks(lengths: Tensor, frames: int, words: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Additions to scores: of frames behind an utterance's end, and of words to come."""
    batch, device, least = len(lengths), lengths.device, torch.finfo(dtype).min
    behind = torch.arange(frames, device=device) >= lengths[:, None]
    behind = behind[:, None, None].expand(batch, 1, frames, frames)
    later = torch.ones(words, words, dtype=torch.bool, device=device).triu(1).expand(batch, 1, words, words)
    zeros = (torch.zeros(mask.shape, dtype=dtype, device=device) for mask in (behind, later))
    return tuple(zero.masked_fill(mask, least) for zero, mask in zip(zeros, (behind, later), strict=True))
