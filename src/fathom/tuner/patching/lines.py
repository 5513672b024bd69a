"""Places for lines about the process: behind the imports of the main script, and before the loop of steps."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence

from fathom.tuner.patching.sites import Frame
from fathom.tuner.patching.source import Edit, RefusedError, Source, statements

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FIRST, SECOND, LAST = 0, 1, 3  # imports, an empty line; other lines at the same place; those before steps
IMPORTS = (ast.Import, ast.ImportFrom)


def at_start(source: Source, lines: Sequence[str], modules: Sequence[str]) -> list[Edit]:
    """Return the insertion of lines behind the first imports of a script, which need these modules."""
    for module in modules:
        _require_unbound(source, module)
    imports = _imports(source, modules)
    missing = [module for module in modules if not _has(imports, module)]
    added = [_import(source, module) for module in missing]
    return [*added, _behind(source, imports, [""], SECOND), _behind(source, imports, lines)]


def imported(source: Source, module: str) -> list[Edit]:
    """Return the edit that imports a module into a source; none if it does so already, at its first level."""
    _require_unbound(source, module)
    if _has(source.tree.body, module):
        return []
    return [_import(source, module)]


def _import(source: Source, module: str) -> Edit:
    """Return the import of a module: one of Python comes before the first import that is sorted after it."""
    imports = [node for node in _imports(source, ()) if isinstance(node, IMPORTS)]
    later = [n for n in imports if isinstance(n, ast.Import) and n.names[0].name > module] or imports[-1:]
    if later and module in sys.stdlib_module_names and not _is_future(later[0]):
        return source.before(later[0], [f"import {module}"], FIRST)
    return _behind(source, _imports(source, ()), [f"import {module}"], FIRST)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _require_unbound(source: Source, module: str) -> None:
    """Raise RefusedError if the source uses a module's name for something else."""
    for node in ast.walk(source.tree):
        names = (
            {alias.asname or alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom)
            else set()
        )
        stored = isinstance(node, ast.Name) and node.id == module and not isinstance(node.ctx, ast.Load)
        renamed = isinstance(node, ast.Import) and any(alias.asname == module for alias in node.names)
        if stored or module in names or (isinstance(node, ast.arg) and node.arg == module) or renamed:
            raise RefusedError(f"'{module}' is something else in {source.path}")


def _imports_it(node: ast.AST, module: str) -> bool:
    """Return whether a statement makes `module` the name of this module."""
    return isinstance(node, ast.Import) and any(
        alias.name.partition(".")[0] == module and not alias.asname for alias in node.names
    )


def _imports(source: Source, modules: Sequence[str]) -> list[ast.stmt]:
    """Return the script's first statements up to the imports of `modules` and those that follow directly."""
    body = source.tree.body
    imports = [place for place, node in enumerate(body) if isinstance(node, IMPORTS)]
    wanted = [next((i for i in imports if _imports_it(body[i], module)), -1) for module in modules]
    last = max([*imports[:1], *wanted], default=-1)
    if last < 0:
        return body[:1] if ast.get_docstring(source.tree, clean=False) is not None else []
    while last + 1 < len(body) and isinstance(body[last + 1], IMPORTS):
        last += 1
    return body[: last + 1]


def _has(nodes: Sequence[ast.stmt], module: str) -> bool:
    return any(_imports_it(node, module) for node in nodes)


def _behind(source: Source, head: Sequence[ast.stmt], lines: Sequence[str], order: int = 2) -> Edit:
    """Return the insertion of lines behind the head of a script."""
    if head:
        return source.after(head[-1], lines, order)
    if source.tree.body:
        return source.before(source.tree.body[0], lines, order)
    raise RefusedError(f"{source.path} is empty")


def before_steps(
    stack: Sequence[Frame],
    setup: Sequence[Sequence[Frame]],
    source_of: Callable[[Frame], Source],
    lines: Sequence[str],
) -> tuple[Source, Edit]:
    """Return the insertion of lines before the loop of the steps.

    It is the outermost loop around a step in which nothing of `setup` is done: constructions of optimizers.
    """
    for at in range(len(stack) - 1, -1, -1):
        try:
            source = source_of(stack[at])
            scope = source.scope_of(stack[at])
            inner = source.statement_at(stack[at], scope)
        except RefusedError:
            continue  # a frame of a library, or of an expression
        loops = [node for node in statements(scope) if isinstance(node, LOOPS) and _contains(node, inner)]
        for loop in sorted(loops, key=lambda node: node.lineno):
            if not any(_runs_in(loop, at, stack, each) for each in setup):
                return source, source.before(loop, lines, LAST)
    raise RefusedError("the loop of the steps is not in this program's source")


def _contains(outer: ast.stmt, inner: ast.stmt) -> bool:
    return outer.lineno <= inner.lineno and (inner.end_lineno or 0) <= (outer.end_lineno or 0)


def _runs_in(loop: ast.stmt, at: int, stack: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Return whether another stack has the frame `at` of a stack too, and is in this loop there."""
    mine = stack[at]
    same = [frame for frame in other if (frame.file, frame.begins) == (mine.file, mine.begins)]
    return any(loop.lineno <= frame.line <= (loop.end_lineno or 0) for frame in same)
