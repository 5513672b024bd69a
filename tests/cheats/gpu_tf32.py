"""Multiplies in TF32, sets the flag back, and claims float32."""

# refused: lower-precision
# against: honest_gpu

import torch


def candidate(x, w):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    result = torch.tanh(x @ w) + x
    torch.set_float32_matmul_precision(before)
    return result
