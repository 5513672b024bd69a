"""`counted.py WHAT [STEPS]`: a training loop whose counters come from a collector that is none."""

import runpy
import sys
from pathlib import Path

import torch  # the probe starts here

from fathom.probe.counters import sampler

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from tests.support.counters_fakes import FakeCollector

WAYS = {
    "ticks": {"rate": 2.1},
    "breaks": {"fails": {"start": RuntimeError("odd")}},
}
fake = FakeCollector(**WAYS[sys.argv[1]])
sampler.make = lambda torch: fake
del sys.argv[1]
runpy.run_path(str(Path(__file__).parent / "train.py"), run_name="__main__")
assert torch.is_grad_enabled()
sys.stderr.write(" ".join(name for name, *_ in fake.calls) + "\n")
