"""Two streams that are busy at once."""

import torch

a = torch.randn(2048, 2048, device="cuda")
side = torch.cuda.Stream()
layer = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)
for _ in range(240):
    with torch.cuda.stream(side):
        b = a @ a @ a
    loss = layer(a).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.current_stream().wait_stream(side)
