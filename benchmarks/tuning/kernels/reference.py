"""Divide every row by its root mean square, and scale by a weight: the reference, and its shapes."""

import numpy as np

EPSILON = 1e-6


def inputs(seed, rows=256, columns=512):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, columns), np.float32)
    return x, random.standard_normal(columns).astype(np.float32)


def inputs_tall(seed):
    return inputs(seed, 2048, 64)


def variants(seed):
    x, weight = inputs(seed, 7, 33)
    holed = x.copy()
    holed[2, 3] = np.nan
    return {"odd": (x, weight), "nan": (holed, weight)}


def norm(x, weight):
    squares = np.stack([np.mean(row.astype(np.float32) ** 2) for row in x])
    return (x / np.sqrt(squares + EPSILON)[:, None]) * weight
