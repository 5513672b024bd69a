"""Read the prompts of a language model beside its decodes, and read a conversation only once.

    fathom lab run chunked-prefill offloaded-cache

prompt_first holds up all decodes for a long prompt; chunked_prefill reads a part of it with each decode.
read_again computes an idle conversation's keys and values anew; offloaded_cache fetches them from the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, matmul_unit

HEAD, GROUP = 64, 4  # width of a head, and heads of queries that share keys and values
NEW = 4  # tokens that the request with the long prompt generates
Model = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # embeddings, attention, up, down, head
Answer = tuple[Tensor, Tensor | None]  # tokens, and the state after the last


def _model(draw: Draw, words: int, width: int, depth: int) -> Model:
    """Return a model whose most likely word has a wide margin: each word has one successor."""
    embeddings = draw.normal(words, width, dtype=draw.dtype)
    shapes = [(width, width + 2 * width // GROUP), (width, 4 * width), (4 * width, width)]
    layers = [draw.normal(depth, *shape, dtype=draw.dtype, scale=shape[0] ** -0.5) for shape in shapes]
    before = draw.uniform(words).argsort()
    return embeddings, layers[0], layers[1], layers[2], embeddings[before].T.contiguous()


@dataclass
class Requests:
    """Requests of equal length. `cache`: keys and values (layers, 2, requests, heads, room, HEAD), of which
    `filled` tokens are known; `unread`: the parts of the prompts that are to be read, each an iteration."""

    cache: Tensor
    wanted: int
    unread: list[Tensor]
    filled: int = 0
    made: list[Tensor] = field(default_factory=list)  # tokens
    states: Tensor | None = None  # after the last token

    @property
    def done(self) -> bool:
        return len(self.made) == self.wanted

    def attended(self, layer: int, rows: Tensor, count: int) -> Tensor:
        """Append the keys and values in `rows` to the cache, and return the attention of its queries."""
        requests, heads = self.cache.shape[2:4]
        joint = rows.view(requests, count, heads, GROUP + 2, HEAD).permute(0, 2, 3, 1, 4)
        known = self.cache[layer][..., : self.filled + count, :]
        known[..., self.filled :, :] = joint[:, :, GROUP:].permute(2, 0, 1, 3, 4)
        result = _causal(joint[:, :, :GROUP], known[0], known[1])
        return result.permute(0, 3, 1, 2, 4).reshape(len(rows), -1)


def _causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention in which the last query sees all keys, the one before all but one, and so on.

    `queries`: (requests, heads, GROUP, count, HEAD). `keys` and `values`: (requests, heads, tokens, HEAD).
    """
    count, end = queries.shape[3], keys.shape[2]
    if count == end:
        heads = queries.flatten(1, 2)
        result = F.scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=True)
    else:
        # Not all kernels that take a mask know groups, so the queries of a group are rows of one head.
        seen = torch.ones(count, end, dtype=torch.bool, device=queries.device).tril(end - count)
        mask = seen.repeat(GROUP, 1) if count > 1 else None
        result = F.scaled_dot_product_attention(queries.flatten(2, 3), keys, values, attn_mask=mask)
    return result.reshape(queries.shape)


def _iteration(batch: list[Requests], model: Model) -> None:
    """Read the next tokens of all requests in one batch, and generate a token where all are read."""
    embeddings, attention, up, down, head = model
    tokens = [each.unread.pop(0) if each.unread else each.made[-1] for each in batch]
    sizes = [part.numel() for part in tokens]
    rows = embeddings[torch.cat([part.flatten() for part in tokens])]
    for layer in range(len(attention)):
        joint = (_normed(rows) @ attention[layer]).split(sizes)
        parts = zip(batch, joint, tokens, strict=True)
        rows = rows + torch.cat([each.attended(layer, own, part.shape[1]) for each, own, part in parts])
        rows = rows + F.silu(_normed(rows) @ up[layer]) @ down[layer]
    for each, own, part in zip(batch, rows.split(sizes), tokens, strict=True):
        each.filled += part.shape[1]
        if not each.unread:
            each.states = _normed(own.view(*part.shape, -1)[:, -1])
            each.made.append((each.states @ head).argmax(dim=1, keepdim=True))


def _normed(rows: Tensor) -> Tensor:
    return F.layer_norm(rows, rows.shape[-1:])


def _room(model: Model, requests: int, tokens: int) -> Tensor:
    """Return an empty cache."""
    embeddings, attention = model[:2]
    heads = embeddings.shape[1] // HEAD // GROUP
    return embeddings.new_empty(len(attention), 2, requests, heads, tokens, HEAD)


def arrival(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Model, int]:
    """Return a prompt, the last tokens of requests that decode, their cache, the model, and a chunk size."""
    draw = Draw(seed, device)
    words, width, depth = draw.shape([(8192, 1024), (4096, 256), (8, 4)])
    tokens, requests, known, chunk = draw.shape([(8192, 512), (16, 4), (1024, 64), (512, 64)])
    model = _model(draw, words, width, depth)
    cache = draw.normal(*_room(model, requests, known).shape, dtype=draw.dtype)
    prompt, last = draw.integers(0, words, 1, tokens), draw.integers(0, words, requests, 1)
    return prompt, last, cache, model, chunk


def _admitted(
    prompt: Tensor, last: Tensor, cache: Tensor, model: Model, chunk: int
) -> tuple[Requests, Requests]:
    """Return the request with the prompt in chunks, and the others, which want a token for each chunk.

    The others want as many more as the one with the prompt.
    """
    known, wanted = cache.shape[4], prompt.shape[1] // chunk + NEW
    others = Requests(_room(model, len(last), known + wanted), wanted, [last], known)
    others.cache[..., :known, :] = cache
    return Requests(_room(model, 1, prompt.shape[1] + NEW), NEW, list(prompt.split(chunk, dim=1))), others


def _answers(requests: Iterable[Requests]) -> list[Answer]:
    return [(torch.cat(each.made, dim=1), each.states) for each in requests]


def prompt_first(prompt: Tensor, last: Tensor, cache: Tensor, model: Model, chunk: int) -> list[Answer]:
    reader, others = _admitted(prompt, last, cache, model, chunk)
    reader.unread = [prompt]
    while waiting := [each for each in (reader, others) if not each.done]:
        _iteration([reader] if reader.unread else waiting, model)
    return _answers([reader, others])


def chunked_prefill(prompt: Tensor, last: Tensor, cache: Tensor, model: Model, chunk: int) -> list[Answer]:
    """title: Read long prompts in chunks beside the decodes
    pair: {group: framework, plain: prompt_first, inputs: arrival, work: arrival_work}
    saves: readings of the weights by decodes alone, and the longest wait between tokens
    idea: A prompt that is read at once holds up each request that decodes. Cut into chunks, it shares batches
      with the next tokens of all others. Arithmetic limits the products of a chunk, so the decodes ride
      along and read no weights again. Tokens are the same.
    cost: Each chunk reads the keys and values of those before it, and chunks that are too short do not fill
      the device. The prompt's own first token comes later, by the decodes that are mixed in. On a core of a
      CPU the longest wait between two tokens fell from 40 to 6 ms, and the time of all requests by 3 %.
    not_when: Prompts are short, hardly anything decodes beside them, or prefills run on other GPUs.
    shows:
      iterations table, prompt tokens between two tokens of a request: the prompt → a chunk
    tips: [inference.chunked-prefill]
    findings: {serving-prefill-blocks-decode: 1}
    needs: {torch: "2.5"}
    proof: {latency: included, cache: warm}"""
    # Agrawal et al., Taming throughput-latency tradeoff in LLM inference with Sarathi-Serve, OSDI 2024
    requests = _admitted(prompt, last, cache, model, chunk)
    while waiting := [each for each in requests if not each.done]:
        _iteration(waiting, model)
    return _answers(requests)


def _flops(model: Model, tokens: int, made: int) -> float:
    """Return the operations of products with weights for tokens that are read, of which some make others."""
    return 2.0 * tokens * sum(part.numel() for part in model[1:4]) + 2.0 * made * model[4].numel()


def arrival_work(
    prompt: Tensor, last: Tensor, cache: Tensor, model: Model, chunk: int
) -> dict[str, float | str]:
    made = len(last) * (prompt.shape[1] // chunk + NEW) + NEW
    flops = _flops(model, prompt.shape[1] - 1 + made, made)
    return {"flops": flops, "unit": matmul_unit(model[0])}


def conversation(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Model]:
    """Return the tokens of a conversation, its next turn, the cache of the former, and the model."""
    draw = Draw(seed, device)
    words, width, depth = draw.shape([(8192, 1024), (4096, 256), (8, 4)])
    known, turn = draw.shape([(8192, 512), (128, 16)])
    model = _model(draw, words, width, depth)
    before, after = draw.integers(0, words, 1, known), draw.integers(0, words, 1, turn)
    reader = Requests(_room(model, 1, known), 1, [before])
    _iteration([reader], model)
    return before, after, reader.cache, model


def _continued(requests: Requests, model: Model) -> list[Answer]:
    while not requests.done:
        _iteration([requests], model)
    return _answers([requests])


def read_again(before: Tensor, after: Tensor, cache: Tensor, model: Model) -> list[Answer]:
    tokens = torch.cat([before, after], dim=1)
    return _continued(Requests(_room(model, 1, tokens.shape[1] + NEW), NEW, [tokens]), model)


def offloaded_cache(before: Tensor, after: Tensor, cache: Tensor, model: Model) -> list[Answer]:
    """title: Keep the cache of an idle conversation in the host's memory
    pair: {group: framework, plain: read_again, inputs: conversation, work: conversation_work}
    saves: the prefill of all earlier turns when a conversation goes on
    idea: Keys and values of a conversation that waits for its user take the place of others. Dropped, they
      are computed again with the next turn. Pinned memory of the host keeps them, and a copy of a token's
      keys and values takes less time than its products. This pair counts the copies in both directions.
    cost: Pinned host memory, 4 KiB per token and layer on a GPU here, and the link, which is busy twice. With
      keys and values for all heads instead of a quarter of them, copies take four times as long.
    not_when: The device has room for the cache, few users come back, or the link is so slow that the products
      are faster.
    shows:
      tokens read when a conversation goes on: all of its turns → the last turn
      copies between host and device: none → the cache, once in each direction
    tips: [inference.offload-cache]
    findings: {serving-kv-cache: 2}
    needs: {torch: "2.5"}
    proof: {latency: included, cache: warm}"""
    # Gao et al., Cost-efficient large language model serving for multi-turn conversations, USENIX ATC 2024
    kept = torch.empty(cache.shape, dtype=cache.dtype, pin_memory=cache.is_cuda)
    kept.copy_(cache, non_blocking=True)
    known = before.shape[1]
    room = _room(model, 1, known + after.shape[1] + NEW)
    for there, layer in zip(room, kept, strict=True):
        # The link copies contiguous memory at its full rate, so places are found on the device.
        fetched = torch.empty_like(layer, device=room.device).copy_(layer, non_blocking=True)
        there[..., :known, :] = fetched
    return _continued(Requests(room, NEW, [after], known), model)


def conversation_work(before: Tensor, after: Tensor, cache: Tensor, model: Model) -> dict[str, float | str]:
    flops = _flops(model, after.shape[1] + NEW - 1, NEW)
    return {"flops": flops, "unit": matmul_unit(model[0])}
