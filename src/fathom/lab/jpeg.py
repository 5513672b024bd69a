"""Encode and decode JPEG files in memory, with Pillow."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image


def encoded(image: torch.Tensor) -> torch.Tensor:
    """Return the JPEG file of a uint8 image (3, height, width), as a uint8 tensor."""
    written = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(written, "JPEG", quality=90)
    return torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)


def decoded(file: torch.Tensor) -> torch.Tensor:
    """Return the pixels (height, width, 3) of a JPEG file."""
    with Image.open(io.BytesIO(file.numpy().tobytes())) as picture:
        return torch.from_numpy(np.array(picture))
