"""Works on a stream that does not wait for the inputs; the timed one waits for it."""

# refused: side-stream
# against: honest_gpu

import torch

_stream = torch.cuda.Stream()


def candidate(x, w):
    with torch.cuda.stream(_stream):
        result = torch.tanh(x @ w) + x
    torch.cuda.current_stream().wait_stream(_stream)
    return result
