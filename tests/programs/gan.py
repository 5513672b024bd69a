"""Two optimizers: `gan.py ITERATIONS CRITIC_STEPS`; the critic steps several times an iteration."""

import sys

import torch

iterations, critic_steps = int(sys.argv[1]), int(sys.argv[2])
generator, critic = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
first, other = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
for _ in range(iterations):
    for _ in range(critic_steps):
        first.zero_grad()
        (critic(torch.randn(16, 8)).mean() - critic(generator(torch.randn(16, 4)).detach()).mean()).backward()
        first.step()
    other.zero_grad()
    critic(generator(torch.randn(16, 4))).mean().backward()
    other.step()
