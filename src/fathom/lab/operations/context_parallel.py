"""Compute attention over a sequence that is split between ranks.

    fathom lab run ring-attention exchanged-heads

gathered_keys collects the keys and values of all ranks first. ring_attention passes them on from rank to
rank while it computes with the part that it has. exchanged_heads trades parts of the sequence for heads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

Step = Callable[[], Tensor]
Numbers = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Numbers:
    """Return queries, keys and values (1, heads, tokens, width) of the whole sequence."""
    draw = Draw(seed, device)
    heads, tokens, width = draw.size(gpu=16, cpu=4), draw.size(gpu=32768, cpu=64), draw.size(gpu=128, cpu=16)
    query, key, value = (draw.normal(1, heads, tokens, width, dtype=draw.dtype) for _ in range(3))
    return query, key, value


def _mine(values: Tensor, dim: int = 2) -> Tensor:
    return values.chunk(dist.get_world_size(), dim)[dist.get_rank()].contiguous()


def reference(query: Tensor, key: Tensor, value: Tensor) -> Step:
    """Attend from this rank's part to the whole sequence, head by head, which saves memory in float64."""
    heads = list(zip(_mine(query).split(1, 1), key.split(1, 1), value.split(1, 1), strict=True))
    return lambda: torch.cat([F.scaled_dot_product_attention(*head) for head in heads], 1)


def gathered_keys(query: Tensor, key: Tensor, value: Tensor) -> Step:
    query, mine = _mine(query), torch.stack([_mine(key), _mine(value)])
    parts = mine.new_empty(dist.get_world_size(), *mine.shape)

    def step() -> Tensor:
        dist.all_gather_into_tensor(parts.flatten(0, 1), mine)
        keys, values = parts.permute(1, 2, 3, 0, 4, 5).flatten(3, 4)
        return F.scaled_dot_product_attention(query, keys, values)

    return step


def _attended(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention to these keys, and the logarithm of its normaliser."""
    operations = torch.ops.aten
    if query.is_cuda:
        result = operations._scaled_dot_product_flash_attention(query, key, value)
        return result[0], result[1][..., : query.shape[2]].unsqueeze(-1)
    output, normaliser = operations._scaled_dot_product_flash_attention_for_cpu(query, key, value)
    return output, normaliser.unsqueeze(-1)


def _merged(first: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the attention to the keys of both, in the precision of the normalisers."""
    (mine, log), (theirs, other_log) = first, other
    share = torch.sigmoid(other_log - log)
    return mine + share * (theirs - mine), torch.logaddexp(log, other_log)


def ring_attention(query: Tensor, key: Tensor, value: Tensor) -> Step:
    """title: Pass keys and values round a ring while attending to them
    pair: {group: ranks, plain: gathered_keys}
    saves: exposed communication, and memory of the gathered keys and values
    idea: Each rank attends to the keys that it has, sends them on to the next rank and receives those of
      the previous one at the same time. Parts of the result are merged by the logarithms of their
      normalisers.
    cost: n attention kernels on n ranks instead of one, a merge after each, and two buffers of one part.
    not_when: Parts are so short that sending one takes longer than attending to it, or the mask is causal
      and parts are not balanced (give each rank one part of the beginning and one of the end).
    shows:
      exposed communication: the all-gather of keys and values → little, while attention takes longer than a
        transfer
      memory of keys and values on a rank: those of the whole sequence → two parts
    tips: [communication.context-parallel]
    findings: {communication-exposed: 6}
    no_gain: two H100s over NVLink, 0.59 times as fast. Two kernels and a merge replace one.
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Liu, Zaharia, Abbeel, Ring Attention with Blockwise Transformers for Near-Infinite Context, ICLR 2024
    query, mine = _mine(query), torch.stack([_mine(key), _mine(value)])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    spare = [torch.empty_like(mine), torch.empty_like(mine)]

    def step() -> Tensor:
        here, state = mine, None
        for turn in range(ranks):
            there = spare[turn % 2]
            passed = _passed_on(here, there, rank, ranks) if turn + 1 < ranks else []
            output, normaliser = _attended(query, here[0], here[1])
            part = output.to(normaliser.dtype), normaliser
            state = part if state is None else _merged(state, part)
            for request in passed:
                request.wait()
            here = there
        assert state is not None
        return state[0].to(query.dtype)

    return step


def _passed_on(here: Tensor, there: Tensor, rank: int, ranks: int) -> list[dist.Work]:
    operations = [
        dist.P2POp(dist.isend, here, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, there, (rank - 1) % ranks),
    ]
    return dist.batch_isend_irecv(operations)


def _exchanged(values: Tensor) -> Tensor:
    """Return the exchange of the first dimension's parts with the other ranks."""
    received = torch.empty_like(values)
    dist.all_to_all_single(received, values.contiguous())
    return received


def exchanged_heads(query: Tensor, key: Tensor, value: Tensor) -> Step:
    """title: Trade parts of the sequence for heads before attention
    pair: {group: ranks, plain: gathered_keys}
    saves: bytes of communication, and memory of the gathered keys and values
    idea: An all-to-all gives each rank the whole sequence of 1/n of the heads. Attention then runs
      unchanged in one kernel, with any mask, and a second all-to-all returns the result to the parts of the
      sequence.
    cost: Four tensors of one part's size are exchanged, of which each rank sends (n-1)/n. The all-gather
      receives n-1 parts of two.
    not_when: There are fewer heads of keys than ranks, ranks are on several hosts with slow links between,
      or there are two ranks (the exchange then moves as much as the gather, and only memory falls).
    shows:
      communication per layer: an all-gather, growing with the number of ranks → two all-to-alls, which do
        not grow
    tips: [communication.context-parallel]
    findings: {communication-exposed: 7}
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Jacobs et al., DeepSpeed Ulysses, 2023, https://arxiv.org/abs/2309.14509
    ranks, mine = dist.get_world_size(), torch.stack([_mine(query), _mine(key), _mine(value)])

    def step() -> Tensor:
        sent = torch.stack(mine.chunk(ranks, 2))  # ranks, three, 1, heads / ranks, tokens / ranks, width
        traded = _exchanged(sent).permute(1, 2, 3, 0, 4, 5).flatten(3, 4)
        output = F.scaled_dot_product_attention(traded[0], traded[1], traded[2])
        return torch.cat(list(_exchanged(torch.stack(output.chunk(ranks, 2)))), 1)

    return step
