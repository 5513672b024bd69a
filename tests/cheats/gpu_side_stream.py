"""Works on a separate stream, and does not wait for it."""

# refused: side-stream
# against: honest_gpu

import torch

_stream = torch.cuda.Stream()


def candidate(x, w):
    _stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_stream):
        return torch.tanh(x @ w) + x
