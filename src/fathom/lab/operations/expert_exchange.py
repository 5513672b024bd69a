"""Send tokens to experts on other ranks, and their results back.

    fathom lab run preallocated-exchange overlapped-exchange

counted_exchange sends the counts first and allocates what they say. preallocated_exchange has room for a
fixed number per expert. overlapped_exchange computes one half of the tokens while the other travels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from fathom.lab import Draw

Step = Callable[[], Tensor]
Numbers = tuple[Tensor, Tensor, Tensor]
SPARE = 1.25  # room per expert, in units of its mean number of tokens


def inputs(seed: int, device: str | None = None) -> Numbers:
    """Return the tokens of every rank, the expert (rank) of each, and the experts' weights."""
    draw, ranks = Draw(seed, device), dist.get_world_size()
    tokens, width = draw.size(gpu=16384, cpu=64), draw.size(gpu=4096, cpu=32)
    # Balanced up to SPARE, as a router with a capacity leaves it
    choice = torch.arange(tokens, device=draw.device) % ranks
    orders = torch.stack([draw.uniform(tokens).argsort() for _ in range(ranks)])
    weights = draw.normal(ranks, width, width, dtype=draw.dtype, scale=width**-0.5)
    return draw.normal(ranks, tokens, width, dtype=draw.dtype), choice[orders], weights


def reference(tokens: Tensor, choice: Tensor, weights: Tensor) -> Step:
    """Apply each token's expert on its own rank."""
    mine, experts = tokens[dist.get_rank()], choice[dist.get_rank()]

    def step() -> Tensor:
        result = torch.empty_like(mine)
        for number, weight in enumerate(weights):
            result[experts == number] = torch.relu(mine[experts == number] @ weight)
        return result

    return step


def counted_exchange(tokens: Tensor, choice: Tensor, weights: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine, experts, weight = tokens[rank], choice[rank], weights[rank]

    def step() -> Tensor:
        order = experts.argsort(stable=True)
        counts = torch.bincount(experts, minlength=ranks)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts)
        sent, received = counts.tolist(), coming.tolist()  # the host waits for the device here
        there = mine.new_empty(sum(received), mine.shape[1])
        dist.all_to_all_single(there, mine[order], received, sent)
        back = torch.empty_like(mine)
        dist.all_to_all_single(back, torch.relu(there @ weight), sent, received)
        return torch.empty_like(mine).index_copy_(0, order, back)

    return step


def _places(experts: Tensor, ranks: int, room: int) -> Tensor:
    """Return each token's place in a buffer with `room` places per expert."""
    chosen = torch.nn.functional.one_hot(experts, ranks)
    return experts * room + (chosen.cumsum(0) * chosen).sum(1) - 1


def preallocated_exchange(tokens: Tensor, choice: Tensor, weights: Tensor) -> Step:
    """title: Exchange tokens with experts in buffers of a fixed size
    pair: {group: ranks, plain: counted_exchange}
    saves: an exchange of counts, and the host's wait for them
    idea: With a capacity per expert, the sizes of all messages are known in advance. Tokens are scattered
      into a buffer that is allocated once, and the same all-to-all runs in each step, without the host
      reading counts from the device. The step can then be captured in a CUDA graph.
    cost: Padding up to the capacity (here a quarter more than the mean) is sent and multiplied too.
    not_when: Experts are so unbalanced that the capacity wastes more than the wait costs, or dropping
      tokens beyond it is not acceptable.
    shows:
      all-to-alls per layer: three → two
      waits of the host for the device: one per layer → none
    tips: [communication.all-to-all]
    findings: {host-sync-item: 6}
    no_gain: two H100s, 0.63 times as fast; the cause was not measured. Prove it before you adopt it.
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Lepikhin et al., GShard, ICLR 2021 (capacity per expert)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine, experts, weight = tokens[rank], choice[rank], weights[rank]
    room = int(SPARE * len(mine) / ranks)
    sent = mine.new_zeros(ranks * room, mine.shape[1])
    there, back = torch.zeros_like(sent), torch.zeros_like(sent)

    def step() -> Tensor:
        places = _places(experts, ranks, room)
        sent.index_copy_(0, places, mine)
        dist.all_to_all_single(there, sent)
        dist.all_to_all_single(back, torch.relu(there @ weight))
        return back[places]

    return step


def overlapped_exchange(tokens: Tensor, choice: Tensor, weights: Tensor) -> Step:
    """title: Overlap the exchange of tokens with the experts' products
    pair: {group: ranks, plain: preallocated_exchange}
    saves: exposed communication of expert parallelism
    idea: Tokens are cut into two halves. While the expert multiplies the first, the second travels, and
      while it multiplies the second, the results of the first return.
    cost: Twice as many collectives and products of half the size.
    not_when: Halves are so small that latency bounds their exchange, or the products take much less time
      than it.
    shows:
      exposed communication per layer: both all-to-alls → the first half of one and the last half of the
        other
    tips: [communication.all-to-all]
    findings: {communication-exposed: 8, communication-padded-tokens: 1}
    no_gain: two H100s over NVLink, 0.98 times as fast; the cause was not measured.
    needs: {ranks: 2}
    proof: {latency: included}"""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine, experts, weight = tokens[rank], choice[rank], weights[rank]
    room = int(SPARE * len(mine) / ranks)
    half = room - room // 2
    sent = mine.new_zeros(2, ranks * half, mine.shape[1])
    there, back = torch.zeros_like(sent), torch.zeros_like(sent)

    def step() -> Tensor:
        within = _places(experts, ranks, room) % room
        # Places of a half are consecutive, so that each half is one message per rank
        places = (within // half) * ranks * half + experts * half + within % half
        sent.flatten(0, 1).index_copy_(0, places, mine)
        going = [dist.all_to_all_single(there[n], sent[n], async_op=True) for n in range(2)]
        returning = []
        for number, request in enumerate(going):
            request.wait()
            done = torch.relu(there[number] @ weight)
            returning.append(dist.all_to_all_single(back[number], done, async_op=True))
        for request in returning:
            request.wait()
        return back.flatten(0, 1)[places]

    return step
