"""JPEG files in memory, written and read on the host by Pillow."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image


def encoded(picture: torch.Tensor) -> torch.Tensor:
    """The file, as bytes, of a picture (3, height, width) of bytes."""
    written = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy()).save(written, "JPEG", quality=90)
    return torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)


def decoded(file: torch.Tensor) -> torch.Tensor:
    """The pixels (height, width, 3) of a file."""
    with Image.open(io.BytesIO(file.numpy().tobytes())) as picture:
        return torch.from_numpy(np.array(picture))
