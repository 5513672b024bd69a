"""Serve the requests of a language model: batches, prefixes, drafts.

    fathom lab run continuous-batching deadline-batching prefix-cache ngram-speculation

static_batches end with their longest answer; continuous_batching refills places. one_each computes
every request as it arrives; deadline_batching lets the first wait for others. whole_prompts reads a common
prefix in each prompt; prefix_cache reads it once. token_by_token reads all weights for every token;
ngram_speculation verifies drafts of several tokens at once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, matmul_unit

PLACES = 16  # of a batch


def answers(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the state of each request, the tokens that it will generate, and the weights of a decode."""
    draw = Draw(seed, device)
    requests, longest, width = draw.shape([(128, 48), (128, 24), (4096, 256)])
    lengths = Draw(seed, "cpu").integers(1, longest + 1, requests)
    weights = draw.normal(width, width, dtype=draw.dtype, scale=width**-0.5)
    return draw.normal(requests, width, dtype=draw.dtype), lengths, weights


def static_batches(states: Tensor, lengths: Tensor, weights: Tensor) -> Tensor:
    made = []
    for rows, wanted in zip(states.split(PLACES), lengths.split(PLACES), strict=True):
        last = torch.empty_like(rows)
        for step in range(1, int(wanted.max()) + 1):
            rows = torch.tanh(rows @ weights)
            done = (wanted == step).nonzero().flatten().to(rows.device)
            last[done] = rows[done]
        made.append(last)
    return torch.cat(made)


def continuous_batching(states: Tensor, lengths: Tensor, weights: Tensor) -> Tensor:
    """title: Admit a request when another one ends
    pair: {group: framework, plain: static_batches, inputs: answers, work: answers_work}
    saves: decodes of places whose answer is complete
    idea: A static batch runs until its longest answer ends, and the places of shorter ones are computed for
      nothing. An engine that decides anew before each token fills a place with the next request at once.
    cost: A scheduler between the tokens, and caches that need no common length. If lengths are uniform, about
      half of a static batch's decodes are saved, less the last requests, which leave places empty again.
    not_when: All answers have the same length, or fewer requests wait than there are places.
    shows:
      iterations table, requests per iteration: falls until the batch ends → stays at the limit
    tips: [inference.continuous-batching]
    no_finding: A recording of steps does not show how many places of a batch are empty.
    proof: {latency: included, cache: warm}"""
    waiting, last = list(range(len(states))), torch.empty_like(states)
    here = [waiting.pop(0) for _ in range(min(PLACES, len(waiting)))]
    rows, left = states[here].clone(), lengths[here].tolist()
    while here:
        rows = torch.tanh(rows @ weights)
        left = [count - 1 for count in left]
        for place in [place for place, count in enumerate(left) if count == 0]:
            last[here[place]] = rows[place]
            if waiting:
                here[place] = waiting.pop(0)
                rows[place], left[place] = states[here[place]], int(lengths[here[place]])
        kept = [place for place, count in enumerate(left) if count > 0]
        if len(kept) < len(here):
            rows, here, left = rows[kept], [here[p] for p in kept], [left[p] for p in kept]
    return last


def answers_work(states: Tensor, lengths: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * int(lengths.sum()) * weights.numel(), "unit": matmul_unit(states)}


DEADLINE_S, RATE = 0.01, 1000.0  # the longest that a request waits for others; requests per second


def arriving(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the state of each request, the second of its arrival, and the layers of a model.

    Arrivals are random and move a clock that is not the machine's: nothing here sleeps.
    """
    draw = Draw(seed, device)
    requests, depth, width = draw.shape([(512, 96), (4, 3), (4096, 256)])
    gaps = -Draw(seed, "cpu").uniform(requests).clamp(min=1e-7).log() / RATE
    layers = draw.normal(depth, width, width, dtype=draw.dtype, scale=width**-0.5)
    return draw.normal(requests, width, dtype=draw.dtype), gaps.double().cumsum(0), layers


def _answered(rows: Tensor, layers: Tensor) -> Tensor:
    for layer in layers:
        rows = torch.tanh(rows @ layer)
    return rows


def one_each(states: Tensor, arrivals: Tensor, layers: Tensor) -> Tensor:
    return torch.cat([_answered(row, layers) for row in states.split(1)])


def batches(arrivals: list[float]) -> list[tuple[int, float]]:
    """Return the size of each batch, and the second in which it begins.

    It begins as soon as it is full, or when its first request has waited until the deadline.
    """
    begun: list[tuple[int, float]] = []
    first = 0
    while first < len(arrivals):
        deadline = arrivals[first] + DEADLINE_S
        size = sum(arrival <= deadline for arrival in arrivals[first : first + PLACES])
        begun.append((size, arrivals[first + size - 1] if size == PLACES else deadline))
        first += size
    return begun


def deadline_batching(states: Tensor, arrivals: Tensor, layers: Tensor) -> Tensor:
    """title: Let requests wait for others until a deadline
    pair: {group: framework, plain: one_each, inputs: arriving, work: arriving_work}
    saves: readings of the weights, and launches
    idea: A request that is computed alone reads all weights for one row. If the first of a batch waits a few
      milliseconds, others arrive and share that reading. A fixed size alone would let requests wait without
      limit when few arrive, so a batch begins when it is full or its first request reaches the deadline.
    cost: Up to the deadline for each request, 10 ms here, which must fit the latency target. The gain is at
      most the requests that arrive within it, about 10 at 1000 a second.
    not_when: Requests are rarer than the deadline, batches are limited by arithmetic, or answers have many
      tokens (see continuous-batching, which admits requests without a wait).
    shows:
      rows per product: one → the requests of a deadline, at most the size of a batch
    tips: [inference.deadline-batching]
    no_finding: A recording of steps does not show when requests arrived.
    proof: {latency: included, cache: warm}"""
    # Crankshaw et al., Clipper, NSDI 2017 (section 4.3: delayed batching)
    sizes = [size for size, _ in batches(arrivals.tolist())]
    return torch.cat([_answered(rows, layers) for rows in states.split(sizes)])


def arriving_work(states: Tensor, arrivals: Tensor, layers: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(states) * layers.numel(), "unit": matmul_unit(states)}


def prompts(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return a prefix, the rest of each prompt, and the weights of queries, keys and values."""
    draw = Draw(seed, device)
    count, shared, own, width = draw.shape([(32, 8), (1024, 192), (128, 16), (2048, 128)])
    weights = draw.normal(3, width, width, dtype=draw.dtype, scale=width**-0.5)
    prefix = draw.normal(shared, width, dtype=draw.dtype)
    return prefix, draw.normal(count, own, width, dtype=draw.dtype), weights


def _attended(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention in which the last query sees all keys, the one before all but one, and so on."""
    rows, columns = queries.shape[-2], keys.shape[-2]
    seen = torch.ones(rows, columns, dtype=torch.bool, device=queries.device).tril(columns - rows)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)


def whole_prompts(prefix: Tensor, rests: Tensor, weights: Tensor) -> Tensor:
    tokens = torch.cat([prefix.expand(len(rests), *prefix.shape), rests], dim=1)
    queries, keys, values = (tokens @ weight for weight in weights)
    return _attended(queries, keys, values)[:, len(prefix) :]


def prefix_cache(prefix: Tensor, rests: Tensor, weights: Tensor) -> Tensor:
    """title: Keep the keys and values of a common prefix
    pair: {group: framework, plain: whole_prompts, inputs: prompts, work: prompts_work}
    saves: products and attention of the prefix in each prompt but the first
    idea: The keys and values of a token depend on the tokens before it alone. Prompts that begin alike have
      the same ones, so an engine keeps them by the hash of each block, and reads only the rest of a prompt.
    cost: Places in the cache, which prefixes nobody asks for any more must leave. The rest of the prompt
      attends to the prefix all the same, so savings are a little below the prefix's share of the tokens.
    not_when: Prompts differ from their first tokens on, as with a date or a name in front.
    shows:
      requests table, cached tokens: none → the prefix, in whole blocks
    tips: [inference.prefix-cache]
    no_finding: A recording of steps does not show whether prompts begin alike.
    proof: {latency: included, cache: warm}"""
    of_prefix = [(prefix @ weight).expand(len(rests), -1, -1) for weight in weights[1:]]
    queries, *own = (rests @ weight for weight in weights)
    keys, values = (torch.cat(parts, dim=1) for parts in zip(of_prefix, own, strict=True))
    return _attended(queries, keys, values)


def prompts_work(prefix: Tensor, rests: Tensor, weights: Tensor) -> dict[str, float | str]:
    tokens = len(prefix) + rests.shape[0] * rests.shape[1]
    seen = len(prefix) + rests.shape[1] / 2
    attention = 4.0 * rests.numel() * seen
    return {"flops": 2.0 * tokens * weights.numel() + attention, "unit": matmul_unit(rests)}


TOKENS, PERIOD, DRAFT = 96, 12, 5


def text(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings, the layers of a model that knows which token follows which, and its head.

    Each token has one successor, and after PERIOD tokens the text begins again. The layers are orthogonal,
    and the head's column of a successor is the turned embedding: a wide margin in any precision.
    """
    draw = Draw(seed, device)
    words, width, depth = draw.shape([(8192, 512), (2048, 256), (8, 4)])
    words = words // PERIOD * PERIOD
    embeddings = draw.normal(words, width)
    layers = torch.linalg.qr(draw.normal(depth, width, width)).Q
    turned = embeddings
    for layer in layers:
        turned = turned @ layer
    order = draw.uniform(words).argsort().view(-1, PERIOD)
    before = torch.empty(words, dtype=torch.long, device=order.device)
    before[order.roll(-1, dims=1).flatten()] = order.flatten()
    return embeddings.to(draw.dtype), layers.to(draw.dtype), turned[before].T.contiguous().to(draw.dtype)


def _next(tokens: Tensor, embeddings: Tensor, layers: Tensor, head: Tensor) -> list[int]:
    """Return the most likely token after each of the tokens."""
    rows = embeddings[tokens]
    for layer in layers:
        rows = rows @ layer
    return [int(token) for token in (rows @ head).argmax(dim=1).tolist()]


def token_by_token(embeddings: Tensor, layers: Tensor, head: Tensor) -> Tensor:
    made = [0]
    while len(made) < TOKENS:
        last = torch.tensor(made[-1:], device=head.device)
        made += _next(last, embeddings, layers, head)
    return torch.tensor(made)


def ngram_speculation(embeddings: Tensor, layers: Tensor, head: Tensor) -> Tensor:
    """title: Verify drafts from the text so far
    pair: {group: framework, plain: token_by_token, inputs: text, work: text_work}
    saves: readings of the weights, and steps
    idea: Where a text repeats itself, the tokens that followed its last words before are a good guess. The
      model verifies the guess in one pass, which reads the weights once, and keeps it up to the first token
      that it would not have chosen. Greedy answers are the same, token for token.
    cost: Products for drafts that are refused. The gain is the number of tokens accepted per pass. This text
      repeats every 12 tokens, so nearly all drafts of 5 are accepted, which is the best case.
    not_when: The text does not repeat itself, or batches are so large that products bound the decode.
    shows:
      turns table, tokens generated per turn: one → one more than the accepted draft
    tips: [inference.speculate]
    findings: {serving-low-acceptance: 1}
    proof: {latency: included, cache: warm}"""
    made, seen = [0], dict[int, int]()
    while len(made) < TOKENS:
        after = seen.get(made[-1])
        draft = [] if after is None else made[after : after + DRAFT]
        follow = _next(torch.tensor([made[-1], *draft], device=head.device), embeddings, layers, head)
        good = next((n for n, token in enumerate(draft) if token != follow[n]), len(draft))
        for token in follow[: good + 1]:
            seen[made[-1]] = len(made)
            made.append(token)
    return torch.tensor(made[:TOKENS])


def text_work(embeddings: Tensor, layers: Tensor, head: Tensor) -> dict[str, float | str]:
    each = 2.0 * (layers.numel() + head.numel())
    return {"flops": (TOKENS - 1) * each, "unit": matmul_unit(head)}
