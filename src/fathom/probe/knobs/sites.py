"""The places in the program's source that settings act on, and the settings in effect when the run ends.

A patch of the program needs both: the calls that construct loaders and optimizers, the calls of modules, and
the loop of steps. A place is the stack of a call: a row of FRAME for each of the program's frames, the
innermost first. Nothing is kept alive, and nothing is added to a step.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from itertools import islice
from types import FrameType
from typing import Any
from weakref import WeakSet, ref
from zlib import crc32

from fathom.pristine import gc, json, open, os
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after
from fathom.probe.session import Session

PART = "finding the places of settings"
FRAME = ("file", "function", "begins", "line", "end_line", "column", "end_column")  # columns in bytes
MOST_FRAMES, MOST_PLACES = 100, 500
OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")  # those that the act `optimizer` changes
LOADER = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
OPTIMIZER = ("fused", "foreach", "differentiable")
_PROBE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
Place = list[tuple[Any, ...]]


class Sites:
    """Collects places within `folders`, where the program's source is."""

    def __init__(self, session: Session, folders: list[str]) -> None:
        self._session = session
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self._sources: dict[str, int | None] = {}  # checksum of each source by path
        self._paths: dict[str, str] = {}
        self._built: dict[str, dict[str, object]] = {}
        self._roots: list[tuple[dict[str, object], str, Any]] = []  # with device and module
        self._met: WeakSet[Any] = WeakSet()
        self._steps: list[Place] = []
        self._main: str | None = None
        self._written = False

    @guarded(PART)
    def loader(self, parameters: list[str], loader: Any, *_: Any, **__: Any) -> None:
        """Keep the place where a loader was constructed, and its options."""
        from torch.utils.data import IterableDataset

        about = {name: getattr(loader, name, None) for name in LOADER}
        about["iterable"] = isinstance(loader.dataset, IterableDataset)
        self._add("loader", loader, about, parameters)

    @guarded(PART)
    def optimizer(self, parameters: list[str], optimizer: Any, *_: Any, **__: Any) -> None:
        """Keep the place where an optimizer was constructed, and its form."""
        inner = _program_frame()
        of_torch = inner.f_globals.get("__name__", "").startswith("torch.optim.")
        if not (of_torch and inner.f_code.co_name == "__init__"):  # AdamW calls Adam's
            about = {name: optimizer.defaults.get(name) for name in OPTIMIZER}
            self._add("optimizer", optimizer, about, parameters)

    def _add(self, kind: str, thing: Any, about: dict[str, object], parameters: list[str]) -> None:
        facts = {k: v if v is None or isinstance(v, int) else bool(v) for k, v in about.items()}
        place = {"kind": kind, "type": type(thing).__name__, "stack": self._stack(), "about": facts}
        if len(self._built) < MOST_PLACES:
            self._built.setdefault(json.dumps(place), {**place, "parameters": parameters})

    @guarded(PART)
    def root(self, module: Any) -> None:
        """Keep the place of a module's first outermost call."""
        if (
            module in self._met
            or len(self._roots) >= MOST_PLACES
            or not any(True for _ in module.parameters())
        ):
            return
        self._met.add(module)
        device = next(module.parameters()).device.type
        place: dict[str, object] = {"kind": "module", "type": type(module).__name__, "stack": self._stack()}
        self._roots.append((place, device, ref(module)))

    @guarded(PART)
    def clock(self, _: str) -> None:
        """Keep the place of a step."""
        self._steps.append(self._stack())
        self._main = getattr(sys.modules.get("__main__"), "__file__", None)  # gone when the program has ended

    def _stack(self) -> Place:
        frame: FrameType | None = _program_frame()
        rows: Place = []
        while frame is not None and len(rows) < MOST_FRAMES:
            code = frame.f_code
            if not code.co_filename.startswith(_PROBE):
                row = self._path(code.co_filename), code.co_name, code.co_firstlineno
                rows.append((*row, *_position(frame)))
            frame = frame.f_back
        return rows

    def _path(self, name: str) -> str:
        """Return the path of a source; the first time, read its checksum."""
        if name not in self._paths:
            path = self._paths[name] = os.path.realpath(name)
            if path.startswith(self._folders) and path not in self._sources:
                self._sources[path] = _checksum(path)
        return self._paths[name]

    @guarded(PART)
    def write(self) -> None:
        """Write `sites-PID.json`, once."""
        if self._written or not (self._steps or self._built or self._roots):
            return
        self._written = True
        torch = self._session.torch
        roots = [
            {**place, "about": {"device": device, **_effects(torch, to())}}
            for place, device, to in self._roots
        ]
        content = {
            "main": os.path.realpath(self._main) if self._main else None,
            "sources": self._sources,
            "places": [*self._built.values(), *roots],
            "steps": self._steps,
            "effects": _process(torch),
        }
        path = os.path.join(self._session.raw, f"sites-{os.getpid()}.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(content))


def _program_frame() -> FrameType:
    """Return the innermost frame outside of the probe."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PROBE):
        frame = frame.f_back
    return frame


def _position(frame: FrameType) -> tuple[int | None, ...]:
    """Return line, last line, column and last column of the call that a frame is in."""
    code = frame.f_code
    if hasattr(code, "co_positions"):  # from Python 3.11 on
        here = next(islice(code.co_positions(), frame.f_lasti // 2, None), None)
        if here is not None and here[0] is not None:
            return here
    return frame.f_lineno, None, None, None


def _positional(initialise: Any) -> list[str]:
    """Return the names of the positional parameters of an `__init__`."""
    parameters = list(inspect.signature(initialise).parameters.values())[1:]
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def _checksum(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            return crc32(file.read())
    except OSError:
        return None


def _effects(torch: Any, module: Any) -> dict[str, object]:
    """Return which settings of a module are in effect, None where it has nothing that they act on."""
    if module is None:
        return {}
    parts = list(module.modules())
    layers = [layer for part in parts if isinstance(part, torch.nn.ModuleList) for layer in part]
    weights = [weight for weight in module.parameters() if weight.dim() == 4]
    last = torch.channels_last
    return {
        "compiled": _is_compiled(module),
        "layers_compiled": all(map(_is_compiled, layers)) if layers else None,
        "channels_last": all(w.is_contiguous(memory_format=last) for w in weights) if weights else None,
    }


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def _process(torch: Any) -> dict[str, object]:
    """Return the settings of this process."""
    cuda = torch.backends.cuda
    attention = {
        "flash": cuda.flash_sdp_enabled,
        "efficient": cuda.mem_efficient_sdp_enabled,
        "cudnn": getattr(cuda, "cudnn_sdp_enabled", bool),
        "math": cuda.math_sdp_enabled,
    }
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "attention": [name for name, enabled in attention.items() if enabled()],
        "threshold": list(gc.get_threshold()),
        "frozen": gc.get_freeze_count(),
    }


def install(session: Session, patches: Patches) -> None:
    """Watch constructions, first calls and steps if the plan asks for it."""
    if not session.plan.sites:
        return
    from torch.utils.data import DataLoader

    sites = Sites(session, session.plan.sites)
    optimizers = [getattr(session.torch.optim, name) for name in OPTIMIZERS]
    for built, kinds in ((sites.loader, [DataLoader]), (sites.optimizer, optimizers)):
        for kind in kinds:
            patches.wrap(kind, "__init__", after(partial(built, _positional(kind.__init__))))
    session.on_root.append(sites.root)
    session.on_clock.append(sites.clock)
    session.on_end.append(sites.write)
