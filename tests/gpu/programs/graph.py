"""A whole training step captured in a CUDA graph and replayed."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
static = torch.randn(64, 512, device="cuda")


def step() -> None:
    optimizer.zero_grad(set_to_none=False)
    model(static).square().mean().backward()
    optimizer.step()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(400):
    static.copy_(torch.randn(64, 512))
    graph.replay()
torch.cuda.synchronize()
