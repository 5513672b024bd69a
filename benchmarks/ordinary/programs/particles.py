"""Simulate charged particles in a box with NumPy; fathom.step() marks each time step."""

import numpy as np
from common import Clock, arguments

import fathom

COUNT = 400
SOFTENING = 0.05


def forces_one_by_one(places: np.ndarray) -> np.ndarray:
    forces = np.zeros_like(places)
    for i in range(len(places)):
        offsets = places[i] - places  # planted
        forces[i] = (offsets / ((offsets**2).sum(1) + SOFTENING)[:, None] ** 1.5).sum(0)  # planted
    return forces


def forces_at_once(places: np.ndarray) -> np.ndarray:
    """The same with squares from products of matrices."""
    norms = (places**2).sum(1)
    weights = (norms[:, None] + norms - 2 * places @ places.T + SOFTENING) ** -1.5
    return places * weights.sum(1)[:, None] - weights @ places


def main() -> None:
    options = arguments(__doc__, steps=150)
    clock = Clock(options.times)
    random = np.random.default_rng(0)
    places, speeds = random.random((COUNT, 3)), np.zeros((COUNT, 3))
    forces = forces_one_by_one if options.fault else forces_at_once
    for _ in range(options.steps):
        speeds += 1e-6 * forces(places)  # planted
        places += speeds
        out = (places < 0) | (places > 1)
        speeds[out] *= -1
        np.clip(places, 0, 1, out=places)
        fathom.step(samples=COUNT)
        clock.tick()


if __name__ == "__main__":
    main()
