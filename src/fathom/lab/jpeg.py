"""Encode and decode JPEG files in memory, with Pillow."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image


def encoded(image: torch.Tensor) -> torch.Tensor:
    """The JPEG file, as uint8, of an image (3, height, width) of uint8."""
    written = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(written, "JPEG", quality=90)
    return torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)


def decoded(file: torch.Tensor) -> torch.Tensor:
    """The pixels (height, width, 3) of a JPEG file."""
    with Image.open(io.BytesIO(file.numpy().tobytes())) as picture:
        return torch.from_numpy(np.array(picture))
