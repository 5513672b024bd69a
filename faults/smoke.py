"""Run programs of the suite on a processor, small, all in one process.

python -m faults.smoke [GROUP/NAME …]    # one line of JSON a form: id, form, loss
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys

from faults.labels import Program, programs


def run(program: Program, form: str, steps: int = 3) -> float:
    """The loss after a few steps."""
    said, words = io.StringIO(), sys.argv
    sys.argv = [program.id, "--form", form, "--device", "cpu", "--small", "--steps", str(steps)]
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(program.module, run_name="__main__", alter_sys=True)  # for workers
    finally:
        sys.argv = words
    return json.loads(said.getvalue().splitlines()[-1])["loss"]


def main() -> None:
    import torch

    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for program in programs():
        if (wanted and program.id not in wanted) or program.fault.needs.get("cupy"):
            continue
        for form in program.forms:
            record = {"id": program.id, "form": form, "loss": run(program, form)}
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
