"""Settings of data loaders: workers, prefetched batches, pinned memory."""

from __future__ import annotations

import inspect
from typing import Any

from fathom.probe.hooks.patches import Patches, around
from fathom.probe.session import Session

ITERABLE = "loader: an IterableDataset divides its samples among its workers itself, so it stays as it is"


def install(session: Session, patches: Patches, options: dict[str, object]) -> None:
    """Give every loader of a map-style dataset these options."""
    from torch.utils.data import DataLoader, IterableDataset

    signature = inspect.signature(DataLoader.__init__)

    def chosen(original: Any, loader: Any, *args: Any, **given: Any) -> Any:
        bound = signature.bind(loader, *args, **given)
        if isinstance(bound.arguments["dataset"], IterableDataset):
            session.note("loader", ITERABLE)
        else:
            bound.arguments.update(usable(bound.arguments, options))
        return original(*bound.args, **bound.kwargs)

    patches.wrap(DataLoader, "__init__", around(chosen))


def usable(given: dict[str, object], options: dict[str, object]) -> dict[str, object]:
    """Return the options that fit: those of worker processes only with workers."""
    workers = options.get("num_workers", given.get("num_workers", 0))
    if workers:
        return options
    for name in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
        given.pop(name, None)
    return {name: value for name, value in options.items() if name in ("num_workers", "pin_memory")}
