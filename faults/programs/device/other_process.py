"""Train on a device that another process uses as well.

The user believes that the device is free. Somebody's notebook computes on it, and both get turns; without it
every kernel takes its own time again.
"""

import subprocess
import sys

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="device-other-process",
    expected=["device-other-process"],
    forbidden=["device-low-clocks", "device-power-limit", "kernels-low-occupancy", "host-launch-bound"],
    share=[0.3, 0.45, 0.5],
    why=(
        "two processes take turns of about 2 ms: the other one's products fill a third, nearly all, all "
        "of its turns"
    ),
    needs={"gpu": True},
    agree=1e-3,
)
OTHER = """
import sys, time, torch
a = torch.randn(4096, 4096, device=sys.argv[1], dtype=torch.bfloat16)
(a @ a).sum().item()
print(flush=True)
while True:
    for _ in range(8):
        a @ a
    torch.cuda.synchronize()
    time.sleep(float(sys.argv[2]))
"""


def main(options):
    width, batch = options.size(4096, 32), options.size(8192, 16)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    other = None
    if options.faulty and options.cuda:
        pause = options.by(3e-3, 3e-4, 0)
        command = [sys.executable, "-Ic", OTHER, "cuda", str(pause)]
        other = subprocess.Popen(command, stdout=subprocess.PIPE)
        other.stdout.readline()  # it computes from here on
    try:
        for _ in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        if other:
            other.kill()
            other.wait()
    return loss


if __name__ == "__main__":
    start(main)
