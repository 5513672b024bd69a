"""Time a program's steps of torch's AdamW in its default or its fused form.

    python benchmarks/accuracy/optimizer_steps.py loop|fused PROGRAM [ARGUMENTS …]

The program is unchanged. The last line of output is the median time in `optimizer.step()` and the median step
in ms, as a JSON list.
"""

from __future__ import annotations

import json
import runpy
import statistics
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cost"))
from launcher import as_started

WARM_UP = 30  # steps


def median_ms(pairs: Iterable[tuple[float, float]]) -> float:
    return 1e3 * statistics.median(end - start for start, end in pairs)


def main() -> None:
    form, program, *arguments = sys.argv[1:]
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    begun: list[float] = []
    ended: list[float] = []
    adam = torch.optim.AdamW

    def fused(*given: Any, **options: Any) -> torch.optim.AdamW:
        return adam(*given, **{**options, "fused": True})

    if form == "fused":
        torch.optim.AdamW = fused
    register_optimizer_step_pre_hook(lambda *_: begun.append(time.perf_counter()))
    register_optimizer_step_post_hook(lambda *_: ended.append(time.perf_counter()))
    runpy.run_path(as_started(program, arguments), run_name="__main__")
    begun, ended = begun[WARM_UP:], ended[WARM_UP:]
    print(json.dumps([median_ms(zip(begun, ended, strict=True)), median_ms(pairwise(ended))]))


if __name__ == "__main__":
    main()
