"""Has the right result and the gradients of something cheaper."""

# refused: wrong-gradient
# against: honest_torch

import torch


class Cheap(torch.autograd.Function):
    @staticmethod
    def forward(context, x, w):
        return torch.tanh(x @ w)

    @staticmethod
    def backward(context, gradient):
        return gradient, gradient


def candidate(x, w):
    return Cheap.apply(x, w)
