"""Replays a graph into one buffer, and returns that buffer."""

# refused: reused-output
# against: honest_gpu

import torch

_graph = torch.cuda.CUDAGraph()
_held = []


def candidate(x, w):
    if not _held:
        _held.extend([x.clone(), w.clone(), None])
        torch.tanh(_held[0] @ _held[1]) + _held[0]
        torch.cuda.synchronize()
        with torch.cuda.graph(_graph):
            _held[2] = torch.tanh(_held[0] @ _held[1]) + _held[0]
    _held[0].copy_(x)
    _held[1].copy_(w)
    _graph.replay()
    return _held[2]
