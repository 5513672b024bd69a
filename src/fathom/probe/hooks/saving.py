"""Time that the program spends on saving its state, through torch.save or another library.

The outermost call counts, so that a trainer's checkpoint is one wait with all that it writes. If a saved file
is synced to the disk in the same step, the saving lasts until then.
"""

from __future__ import annotations

import functools
import io
import os as program_os
from typing import Any

import torch

from fathom.pristine import os, time
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around
from fathom.probe.imports import when_imported
from fathom.probe.session import Session
from fathom.probe.threads import get_ident

CALLS = {  # functions and methods that return when the state is written, by module
    "numpy": ("save", "savez", "savez_compressed"),
    "safetensors.torch": ("save_file", "save_model"),
    "torch.distributed.checkpoint": ("save", "async_save"),
    "transformers.trainer": ("Trainer._save_checkpoint",),
    "transformers.modeling_utils": ("PreTrainedModel.save_pretrained",),
    "accelerate.accelerator": ("Accelerator.save_state", "Accelerator.save_model"),
    "lightning.pytorch.trainer.trainer": ("Trainer.save_checkpoint",),
    "pytorch_lightning.trainer.trainer": ("Trainer.save_checkpoint",),
}
SYNCS = ("fsync", "fdatasync")
File = tuple[int, int]  # device and inode


class Saving:
    """The saving of each thread: the calls that are open, and the last one that ended."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: set[int] = set()
        self._last: dict[int, tuple[int, int, File | None]] = {}  # by thread: step, end, file

    def call(self, detail: str, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `original`, which saves, and record how long it took."""
        thread = get_ident()
        if thread in self._open:
            return original(*args, **kwargs)
        self._open.add(thread)
        start = time.time_ns()
        try:
            return original(*args, **kwargs)
        finally:
            self._open.discard(thread)
            self._saved(detail, start, args, kwargs)

    def sync(self, detail: str, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `original`, which syncs a file, and record it if this step has saved something."""
        thread = get_ident()
        if thread not in self._last or thread in self._open:
            return original(*args, **kwargs)
        start = time.time_ns()
        try:
            return original(*args, **kwargs)
        finally:
            self._synced(detail, start, args[0] if args else None)

    @guarded("timing saves")
    def _saved(self, detail: str, start: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        end = time.time_ns()
        self._session.wait("checkpoint", start, end, detail)
        written = [*args, *kwargs.values()]
        file = next((known for argument in written if (known := _file(argument))), None)
        self._last[get_ident()] = self._session.open_step(), end, file

    @guarded("timing saves")
    def _synced(self, detail: str, start: int, target: Any) -> None:
        end, thread = time.time_ns(), get_ident()
        step, before, file = self._last.pop(thread)
        if step != self._session.open_step():
            return
        synced = _identity(os.fstat(target)) if isinstance(target, int) else _file(target)
        since = before if file is not None and synced == file else start  # flushing precedes it
        self._session.wait("checkpoint", since, end, detail)
        self._last[thread] = step, end, file


def _file(target: Any) -> File | None:
    """Return the identity of a file, by its path or object; None if it is none."""
    try:
        if isinstance(target, io.IOBase):
            return _identity(os.fstat(target.fileno()))
        return _identity(os.stat(target)) if isinstance(target, (str, program_os.PathLike)) else None
    except Exception:  # a file of memory has no descriptor
        return None


def _identity(known: program_os.stat_result) -> File:
    return known.st_dev, known.st_ino


def install(session: Session, patches: Patches) -> None:
    """Wrap the calls that save; those of other libraries when the program imports them."""
    saving = Saving(session)
    patches.wrap(torch, "save", around(functools.partial(saving.call, "torch.save")))
    for name in SYNCS:
        patches.wrap(program_os, name, around(functools.partial(saving.sync, f"os.{name}")))
    for module, names in CALLS.items():
        when_imported(module, functools.partial(_wrap, saving, patches, names))


def _wrap(saving: Saving, patches: Patches, names: tuple[str, ...], module: Any) -> None:
    for path in names:
        owner, _, name = path.rpartition(".")
        detail = f"{module.__name__}.{path}"
        patches.wrap(
            getattr(module, owner, None) if owner else module,
            name,
            around(functools.partial(saving.call, detail)),
        )
