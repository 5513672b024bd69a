"""Train with CUDA graphs, in each of the ways that PyTorch offers; without a GPU the step runs eagerly."""

from collections.abc import Callable

import torch
from common import Stopwatch, Transformer, arguments
from torch import Tensor

WARM_UP = 5


def eager(model: Transformer, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], Tensor]:
    def step(tokens: Tensor) -> Tensor:
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def captured_step(
    model: Transformer, optimizer: torch.optim.Optimizer, example: Tensor
) -> Callable[[Tensor], Tensor]:
    """Capture forward, backward and optimizer in one graph; a step copies its tokens in and replays it."""
    static, step = example.clone(), eager(model, optimizer)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(static)

    def replay(tokens: Tensor) -> Tensor:
        static.copy_(tokens)
        graph.replay()
        return loss

    return replay


def prepare(mode: str, model: Transformer, example: Tensor) -> Callable[[Tensor], Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=example.is_cuda)
    if not example.is_cuda:
        return eager(model, optimizer)
    if mode == "whole":
        return captured_step(model, optimizer, example)
    if mode == "callables":
        hidden = model.embedding(example[:, :-1]).detach().requires_grad_()
        model.blocks = torch.cuda.make_graphed_callables(model.blocks, (hidden,))
        return eager(model, optimizer)
    return eager(torch.compile(model, mode="reduce-overhead"), optimizer)


def main() -> None:
    parser = arguments(__doc__, steps=400)
    parser.add_argument("--mode", choices=["whole", "callables", "reduce-overhead"], default="whole")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    vocabulary, width, layers, shape = (256, 64, 2, (4, 65)) if options.small else (8192, 512, 8, (8, 257))
    corpus = torch.randint(vocabulary, (32, *shape), device=options.device)
    step = prepare(options.mode, Transformer(vocabulary, width, layers).to(options.device), corpus[0])
    watch = Stopwatch()
    for number in range(options.steps):
        loss = step(corpus[number % len(corpus)])
        if number % 50 == 49:
            print(f"step {number + 1}  loss {loss.item():.3f}", flush=True)
        watch.lap()
    print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
