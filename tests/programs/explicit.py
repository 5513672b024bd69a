"""Marks its steps itself: `explicit.py STEPS`."""

import sys

import torch

import fathom

weights = torch.randn(64, 64)
for _ in range(int(sys.argv[1])):
    with fathom.region("product"):
        weights = torch.tanh(weights @ weights)
    fathom.step(samples=64, tokens=640, kind="train")
