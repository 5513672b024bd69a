"""How each act is written into a program's source, and whether a run shows it in effect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fathom.tuner.patching.bindings import Bound, Following
from fathom.tuner.patching.keywords import constructs, given, with_arguments
from fathom.tuner.patching.lines import at_start, before_steps, imported
from fathom.tuner.patching.program import Program
from fathom.tuner.patching.sites import Place, Sites
from fathom.tuner.patching.source import Edit, RefusedError, Source

# Arguments that a loader without workers refuses, with their defaults.
OF_WORKERS = {
    "prefetch_factor": "None",
    "persistent_workers": "False",
    "timeout": "0",
    "multiprocessing_context": "None",
}
FORMS = ("fused", "foreach", "differentiable")
Writer = Callable[[Program, Any], list[Edit]]


def literal(value: Any) -> str:
    """Return a value as Python source."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _loader(program: Program, options: dict[str, Any]) -> list[Edit]:
    places = program.places("loader")
    untouched = {place.stack[0] for place in places if place.about.get("iterable")}
    edits = []
    for place in places:
        if place.about.get("iterable") or not _loader_lacks(place, options):
            continue
        if place.stack[0] in untouched:
            raise RefusedError(f"{_where(place)} also constructs loaders of an IterableDataset")
        edits += _loader_call(program, place, options)
    return _some(edits, "loader")


def _loader_call(program: Program, place: Place, options: dict[str, Any]) -> list[Edit]:
    source = program.source_of(place.stack[0])
    call = source.call_at(place.stack[0], (place.type, "__init__"))
    _require_class(source, call, place)
    values = {name: literal(value) for name, value in _usable(place, options).items()}
    if not _workers(place, options):
        present = given(call, place.parameters)
        values |= {name: value for name, value in OF_WORKERS.items() if name in present}
    return with_arguments(source, call, place.parameters, values)


def _workers(place: Place, options: dict[str, Any]) -> int:
    return int(options.get("num_workers", place.about.get("num_workers") or 0))


def _usable(place: Place, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a loader takes: those of workers only with workers."""
    if _workers(place, options):
        return options
    return {name: value for name, value in options.items() if name not in OF_WORKERS}


def _loader_lacks(place: Place, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are not in effect."""
    usable = _usable(place, options)
    return {name: value for name, value in usable.items() if place.about.get(name) != value}


def _optimizer(program: Program, form: str) -> list[Edit]:
    places = program.places("optimizer")
    chosen = {place.stack[0] for place in places if _has_form(place)}
    edits = []
    for place in places:
        if _has_form(place):
            continue
        if place.stack[0] in chosen:
            raise RefusedError(f"{_where(place)} also constructs optimizers in another form")
        source = program.source_of(place.stack[0])
        call = source.call_at(place.stack[0], (place.type, "__init__"))
        _require_class(source, call, place)
        edits += with_arguments(source, call, place.parameters, {form: "True"})
    return _some(edits, "optimizer")


def _has_form(place: Place) -> bool:
    """Return whether an optimizer has chosen its form itself."""
    return any(place.about.get(name) for name in FORMS)


def _require_class(source: Source, call: Any, place: Place) -> None:
    if not constructs(source, call, place.type):
        raise RefusedError(f"{_where(place)} constructs a {place.type} under another name")


def _where(place: Place) -> str:
    frame = place.stack[0]
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _some(edits: list[Edit], kind: str) -> list[Edit]:
    if not edits:
        raise RefusedError(f"no {kind} that needs it was constructed in the steps that ran")
    return edits


def _modules(program: Program) -> Iterator[Bound]:
    """Yield where each called module gets its name."""
    places = program.places("module")
    if not places:
        raise RefusedError("no module was called in the steps that ran")
    for place in places:
        yield Following(place.stack, program.source_of).called()


def _compile(program: Program, options: dict[str, Any]) -> list[Edit]:
    passed = {name: value for name, value in options.items() if name != "regional"}
    words = ", ".join(f"{name}={literal(value)}" for name, value in passed.items())
    edits = []
    for bound in _modules(program):
        if not options.get("regional"):
            edits.append(bound.then([f"{bound.name}.compile({words})"]))
            continue
        edits += imported(bound.source, "torch")
        edits.append(bound.then(_each_layer(bound, words)))
    return edits


def _each_layer(bound: Bound, words: str) -> list[str]:
    part, layer = (_unused(bound.source, name) for name in ("part", "layer"))
    return [
        f"for {part} in list({bound.name}.modules()):",
        f"    if isinstance({part}, torch.nn.ModuleList):",
        f"        for {layer} in {part}:",
        f"            {layer}.compile({words})",
    ]


def _unused(source: Source, name: str) -> str:
    """Return a name that a source does not use."""
    while name in source.text:
        name += "_"
    return name


def _channels_last(program: Program, _: bool) -> list[Edit]:
    edits = []
    for bound in _modules(program):
        edits += imported(bound.source, "torch")
        edits.append(bound.then([f"{bound.name}.to(memory_format=torch.channels_last)"]))
    return edits


def _autocast(program: Program, dtype: str) -> list[Edit]:
    raise RefusedError(f"the forward pass and the loss belong in a `with torch.autocast(…, torch.{dtype})`")


def _started(program: Program, *lines: str, module: str = "torch") -> list[Edit]:
    return at_start(program.main(), lines, (module,))


def _garbage(program: Program, value: Any) -> list[Edit]:
    if value != "freeze":
        return _started(program, f"gc.set_threshold({int(value):_}, 20, 100)", module="gc")
    setup = [place.stack for place in program.places("optimizer") or program.places("loader")]
    edits = []
    for stack in program.steps():
        source, edit = before_steps(stack, setup, program.source_of, ("gc.collect()", "gc.freeze()"))
        edits += [*imported(source, "gc"), edit]
    return edits


def _attention(program: Program, value: str) -> list[Edit]:
    names = {"flash": "flash", "efficient": "mem_efficient", "cudnn": "cudnn", "math": "math"}
    lines = [
        f"torch.backends.cuda.enable_{of_torch}_sdp({name in (value, 'math')})"
        for name, of_torch in names.items()
    ]
    return _started(program, *lines)


WRITERS: dict[str, Writer] = {
    "loader": _loader,
    "optimizer": _optimizer,
    "matmul_precision": lambda p, v: _started(p, f"torch.set_float32_matmul_precision({literal(v)})"),
    "flush_denormal": lambda p, v: _started(p, f"torch.set_flush_denormal({bool(v)})"),
    "cudnn_benchmark": lambda p, v: _started(p, f"torch.backends.cudnn.benchmark = {bool(v)}"),
    "attention": _attention,
    "garbage": _garbage,
    "autocast": _autocast,
    "channels_last": _channels_last,
    "compile": _compile,  # after the memory format
}


def written(program: Program, acts: dict[str, Any]) -> list[Edit]:
    """Return the edits that write acts into the source. Raises RefusedError with the reason."""
    edits = []
    for name, value in acts.items():
        if name not in WRITERS:
            raise RefusedError("there is no line of code for it")
        edits += WRITERS[name](program, value)
    return edits


def not_in_effect(processes: Sequence[Sites], acts: dict[str, Any]) -> str:
    """Return which act a run does not show in effect; empty if all are."""
    for sites in processes:
        for name, value in acts.items():
            if not _is_in_effect(sites, name, value):
                return f"{name.replace('_', ' ')} = {value} was not in effect in a run of the patched copy"
    return ""


def _is_in_effect(sites: Sites, name: str, value: Any) -> bool:
    effects = sites.effects
    match name:
        case "loader":
            mapped = (place for place in sites.of("loader") if not place.about.get("iterable"))
            return not any(_loader_lacks(place, value) for place in mapped)
        case "optimizer":
            return all(map(_has_form, sites.of("optimizer")))
        case "compile":
            key = "layers_compiled" if value.get("regional") else "compiled"
            return all(place.about.get(key) is not False for place in sites.of("module"))
        case "channels_last":
            return all(place.about.get(name) is not False for place in sites.of("module"))
        case "garbage":
            return effects["frozen"] > 0 if value == "freeze" else effects["threshold"][0] == int(value)
        case "attention":
            return set(effects["attention"]) == {value, "math"}
    return name not in effects or effects[name] == value
