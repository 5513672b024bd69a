"""Read a file into the device's memory, with kvikio.

    fathom lab run direct-storage

through_host reads and then copies; direct_storage does both at once, or bypasses the host.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import kvikio
import kvikio.defaults
import numpy as np
import torch
from torch import Tensor

from fathom.lab import Draw

SIZE, PART, THREADS, PAGE = 1 << 29, 1 << 27, 8, 4096


@cache
def _file() -> Path:
    """Return the path of a file of random bytes, which is written once."""
    path = Path(tempfile.gettempdir()) / f"fathom-lab-bytes-{os.getuid()}-{SIZE}.bin"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(np.random.default_rng(0).bytes(SIZE))
        Path(file.name).replace(path)
    return path


def inputs(seed: int, device: str | None = None) -> tuple[str, Tensor, Tensor]:
    first = PAGE * Draw(seed, "cpu").integers(0, (SIZE - PART) // PAGE + 1, 1)
    return str(_file()), first, Draw(seed, device).normal(1)


def _used(content: Tensor, scale: Tensor) -> Tensor:
    return content[::64].to(scale.dtype) * scale


def through_host(path: str, first: Tensor, scale: Tensor) -> Tensor:
    content = np.fromfile(path, np.uint8, PART, offset=int(first))
    return _used(torch.from_numpy(content).to(scale.device), scale)


def direct_storage(path: str, first: Tensor, scale: Tensor) -> Tensor:
    """title: Read from storage directly to the device
    pair: {group: input, plain: through_host}
    saves: copies within the host, and its cores
    idea: A file that is read on the host and then sent passes through host memory three times, in the page
      cache, the program's buffer and the driver's pinned buffer. With GPUDirect Storage, the disk writes to
      the device's memory. Where a file system does not support it, kvikio's compatibility mode reads with
      several threads into pinned buffers and sends each while others are read.
    cost: Reads aligned to 4096 bytes, and registering the file once. Time becomes that of the slower of disk
      and link instead of the sum of three copies.
    not_when: The file is small and in the page cache, the host decodes every byte anyway, or the disk is so
      slow that nothing after it matters.
    shows:
      host memory traffic per byte of the file: six bytes → none with GPUDirect Storage, four in compatibility
        mode
      copies from host to device: one, pageable → several at a time, pinned, or none
    tips: [data.direct-storage]
    findings: {input-storage-bound: 2, input-pageable-copy: 2}
    needs: {gpu: true, packages: [kvikio]}
    proof: {latency: included}"""
    # Only on a GPU: it reads into device memory.
    content = torch.empty(PART, dtype=torch.uint8, device=scale.device)
    torch.cuda.current_stream().synchronize()  # the reads are on other streams
    with kvikio.defaults.set("num_threads", THREADS), kvikio.CuFile(path, "r") as file:
        if file.read(content, file_offset=int(first)) != PART:
            raise OSError(f"{path} is shorter than it was written.")
    return _used(content, scale)


def work(path: str, first: Tensor, scale: Tensor) -> dict[str, float]:
    return {"bytes": PART}
