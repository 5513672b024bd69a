"""Replays a graph over its own copy of the first inputs."""

# refused: cached-result
# against: honest_gpu

import torch

_graph = torch.cuda.CUDAGraph()
_kept = []


def candidate(x, w):
    if not _kept:
        _kept.extend([x.clone(), w.clone(), None])
        torch.tanh(_kept[0] @ _kept[1]) + _kept[0]
        torch.cuda.synchronize()
        with torch.cuda.graph(_graph):
            _kept[2] = torch.tanh(_kept[0] @ _kept[1]) + _kept[0]
    _graph.replay()
    return _kept[2].clone()
