"""Balance a pole with deep Q-learning: gymnasium's CartPole and a replay buffer with priorities."""

import random

import gymnasium
import numpy as np
import torch
from common import Clock, arguments
from torch import Tensor, nn

GAMMA = 0.99
CAPACITY = 10_000
BATCH = 64
MOVES = 4  # between two updates


class Replay:
    """The last moves. Those that were predicted badly are drawn more often."""

    def __init__(self, scan: bool) -> None:
        self.rows: list[tuple] = []
        self.priorities: list[float] = []
        self.next, self.scan = 0, scan

    def add(self, row: tuple) -> None:
        if len(self.rows) < CAPACITY:
            self.rows.append(row)
            self.priorities.append(1.0)
        else:
            self.rows[self.next], self.priorities[self.next] = row, 1.0
        self.next = (self.next + 1) % CAPACITY

    def draw(self) -> list[int]:
        return self.draw_by_scan() if self.scan else self.draw_by_search()  # planted

    def draw_by_scan(self) -> list[int]:
        total = sum(self.priorities)
        return [self.scan_to(random.random() * total) for _ in range(BATCH)]

    def scan_to(self, left: float) -> int:
        for place, priority in enumerate(self.priorities):  # planted
            left -= priority  # planted
            if left <= 0:  # planted
                return place
        return len(self.priorities) - 1

    def draw_by_search(self) -> list[int]:
        sums = np.cumsum(self.priorities)
        places = np.searchsorted(sums, np.random.random(BATCH) * sums[-1])
        return np.minimum(places, len(self.rows) - 1).tolist()


def moves(env: gymnasium.Env, network: nn.Module, replay: Replay):
    """Plays, greedily nine times of ten."""
    state, _ = env.reset(seed=0)
    while True:
        if len(replay.rows) < CAPACITY or random.random() < 0.1:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = network(torch.as_tensor(state)).argmax().item()
        after, reward, over, cut, _ = env.step(action)
        replay.add((state, action, reward, after, over))
        state = env.reset()[0] if over or cut else after
        yield


def update(network: nn.Module, optimizer: torch.optim.Optimizer, replay: Replay) -> Tensor:
    places = replay.draw()
    columns = zip(*(replay.rows[place] for place in places), strict=True)
    state, action, reward, after, over = (torch.as_tensor(np.array(column)) for column in columns)
    with torch.no_grad():
        target = reward.float() + GAMMA * network(after).amax(1) * ~over
    value = network(state).gather(1, action[:, None])[:, 0]
    errors = value - target
    optimizer.zero_grad()
    errors.square().mean().backward()
    optimizer.step()
    for place, error in zip(places, errors.detach().abs().tolist(), strict=True):
        replay.priorities[place] = error + 1e-3
    return errors


def main() -> None:
    options = arguments(__doc__, steps=200)
    random.seed(0)
    clock, replay = Clock(options.times), Replay(scan=options.fault)
    network = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    play = moves(gymnasium.make("CartPole-v1"), network, replay)
    for _ in range(CAPACITY):
        next(play)
    for _ in range(options.steps):
        for _ in range(MOVES):
            next(play)
        update(network, optimizer, replay)
        clock.tick()


if __name__ == "__main__":
    main()
