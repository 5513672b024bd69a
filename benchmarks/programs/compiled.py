"""Train a transformer that torch.compile has fused."""

import argparse

import torch
from common import Stopwatch, Transformer, arguments


def build(options: argparse.Namespace) -> tuple[Transformer, torch.Tensor]:
    vocabulary, width, layers, shape = (256, 64, 2, (4, 65)) if options.small else (8192, 768, 8, (16, 513))
    model = Transformer(vocabulary, width, layers).to(options.device)
    return model, torch.randint(vocabulary, (32, *shape))


def main() -> None:
    parser = arguments(__doc__, steps=300)
    parser.add_argument("--mode", default="default", help="torch.compile's mode")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model, corpus = build(options)
    compiled = torch.compile(model, mode=options.mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    watch = Stopwatch()
    for step in range(options.steps):
        tokens = corpus[step % len(corpus)].to(options.device)
        with torch.autocast(torch.device(options.device).type, torch.bfloat16):
            loss = compiled(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
