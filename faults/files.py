"""Files that the programs read, made at their first use and kept in the folder for temporary files."""

from __future__ import annotations

import os
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

try:
    from PIL import Image
except ImportError:  # then pictures are deflated pixels, which cost about as much to read
    Image = None  # type: ignore[assignment]

FOLDER = Path(tempfile.gettempdir()) / "fault-files"


def pictures(count: int, size: int) -> list[Path]:
    """`count` square pictures, JPEG where a library for it is here."""
    ending = "jpg" if Image else "z"
    files = [FOLDER / f"{size}-{number}.{ending}" for number in range(count)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        if not file.exists():
            _write(file, _picture(number, size))
    return files


def _picture(seed: int, size: int) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (size // 8, size // 8, 3))
    fine = np.random.default_rng(seed + 1).integers(-20, 20, (size, size, 3))
    return np.clip(coarse.repeat(8, 0).repeat(8, 1) + fine, 0, 255).astype(np.uint8)


def _part(file: Path) -> Path:
    """The temporary name of a file that is being written; concurrent programs may write the same file."""
    return file.with_suffix(f".{os.getpid()}.part")


def _write(file: Path, pixels: np.ndarray) -> None:
    part = _part(file)
    if Image:
        Image.fromarray(pixels).save(part, "JPEG", quality=90)
    else:
        part.write_bytes(zlib.compress(pixels.tobytes(), 1))
    part.replace(file)


def read_picture(file: Path) -> np.ndarray:
    """Pixels of (size, size, 3), as bytes."""
    if Image:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"))
    size = int(file.stem.split("-")[0])
    return np.frombuffer(zlib.decompress(file.read_bytes()), np.uint8).reshape(size, size, 3).copy()


def records(count: int, size: int) -> list[Path]:
    """`count` files of `size` random bytes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = [FOLDER / f"record-{size}-{number}.bin" for number in range(count)]
    for number, file in enumerate(files):
        if not file.exists():
            part = _part(file)
            part.write_bytes(np.random.default_rng(number).bytes(size))
            part.replace(file)
    return files


class Pictures(Dataset):
    """Pictures and their classes, over and over; `transform` turns pixels into what the model takes."""

    def __init__(self, files: list[Path], transform=None, length: int = 1 << 16) -> None:
        self.files, self.transform, self.length = files, transform or to_tensor, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = read_picture(self.files[index % len(self.files)])
        return self.transform(pixels), index % 64


def to_tensor(pixels: np.ndarray) -> Tensor:
    """Channels first, still bytes: the device turns them into numbers."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def normalised(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers around zero, on whatever device they lie."""
    return images.to(dtype).sub_(127.5).div_(64)
