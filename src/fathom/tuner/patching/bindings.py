"""Where a called module got its name: the place in the source where a line about it can be inserted.

A name is followed from the call outwards: through parameters to the calls that passed it, to the assignments
of a variable or of an attribute of `self`. The place is behind the last assignment before the call, if every
way to the call passes it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fathom.tuner.patching.sites import Frame
from fathom.tuner.patching.source import FUNCTIONS, Edit, Function, RefusedError, Source, inside, last_name

Scope = Function | ast.Module
PASSING = ("_contextlib.py",)  # of torch: decorators such as no_grad, which pass all arguments on
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")  # have frames before Python 3.12


@dataclass(frozen=True)
class Bound:
    """A module's name in a source, and the statement behind which it is that module."""

    source: Source
    name: str
    statement: ast.stmt

    def then(self, lines: Sequence[str]) -> Edit:
        """Return the insertion of lines about the module after its statement."""
        return self.source.after(self.statement, lines)


class Following:
    """Follows names along a stack; `source_of` returns the program's source of a frame, or refuses."""

    def __init__(self, stack: Sequence[Frame], source_of: Callable[[Frame], Source]) -> None:
        self.stack, self.source_of = stack, source_of

    def called(self) -> Bound:
        """Return where the callable of the innermost call got its name."""
        source = self.source_of(self.stack[0])
        return self._followed(0, source.call_at(self.stack[0]).func)

    def _followed(self, at: int, node: ast.expr) -> Bound:
        while self.stack[at].function in COMPREHENSIONS and at + 1 < len(self.stack):
            at += 1
        frame = self.stack[at]
        source = self.source_of(frame)
        scope = source.scope_of(frame)
        if isinstance(node, ast.Name):
            return self._variable(at, source, scope, node.id)
        if isinstance(node, ast.Attribute) and _is_self(node.value, source, scope):
            return self._attribute(at, source, scope, node.attr)
        raise RefusedError(f"the module called in {source.path}:{frame.line} has no simple name")

    def _variable(self, at: int, source: Source, scope: Scope, name: str) -> Bound:
        bindings = list(_bindings(scope, name))
        if not bindings and isinstance(scope, FUNCTIONS) and name in _parameters(scope):
            return self._argument(at, source, scope, name)
        if bindings or isinstance(scope, ast.Module):
            return _place(source, scope, name, bindings, source.statement_at(self.stack[at], scope))
        outer = _enclosing(source, scope)
        if isinstance(outer, ast.Module):
            if any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(source.tree)):
                raise RefusedError(f"'{name}' is a global variable that functions of {source.path} assign")
            bindings = list(_bindings(outer, name))
            return _place(source, outer, name, bindings, self._statement_in(at, source, outer))
        return self._variable(self._frame_of(at, source, outer), source, outer, name)

    def _frame_of(self, at: int, source: Source, scope: Scope) -> int:
        for place in range(at + 1, len(self.stack)):
            frame = self.stack[place]
            if frame.file == self.stack[at].file and source.is_scope(scope, frame):
                return place
        raise RefusedError(f"a function in {source.path} calls a module of one that has returned")

    def _statement_in(self, at: int, source: Source, scope: Scope) -> ast.stmt | None:
        """Return the statement that a scope is in, or None if it has ended."""
        try:
            return source.statement_at(self.stack[self._frame_of(at, source, scope)], scope)
        except RefusedError:
            return None

    def _argument(self, at: int, source: Source, scope: Function, name: str) -> Bound:
        """Follow a parameter to the call that passed it."""
        outer = at + 1
        while outer < len(self.stack) and self.stack[outer].file.endswith(PASSING):
            outer += 1
        if outer == len(self.stack):
            raise RefusedError(f"the caller of '{scope.name}' in {source.path} is unknown")
        frame = self.stack[outer]
        caller = self.source_of(frame)
        names = _names(source, scope)
        call = caller.call_at(frame, names)
        if last_name(call.func) not in names:
            raise RefusedError(f"'{scope.name}' in {source.path} is called under another name")
        return self._followed(outer, _passed(source, scope, call, name))

    def _attribute(self, at: int, source: Source, scope: Scope, name: str) -> Bound:
        """Return where a method of the class, its bases or its subclasses assigned `self.name`."""
        owner = _class_of(source, scope)
        assert owner is not None
        nodes = [node for related in _related(source, owner) for node in related.body]
        methods = [m for m in nodes if isinstance(m, FUNCTIONS) and _class_of(source, m) is not None]
        binding = [method for method in methods if any(_bindings(method, name, _first(method)))]
        if len(binding) != 1:
            raise RefusedError(f"'self.{name}' is not assigned by exactly one method of {owner.name}")
        method = binding[0]
        own = _first(method)
        point = source.statement_at(self.stack[at], method) if method is scope else None
        return _place(source, method, f"{own}.{name}", list(_bindings(method, name, own)), point)


def _passed(source: Source, scope: Function, call: ast.Call, name: str) -> ast.expr:
    """Return the expression that a call passes as the parameter `name`."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(k.arg is None for k in call.keywords):
        raise RefusedError(f"'{scope.name}' in {source.path} gets '{name}' through * or **")
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [each.arg for each in (*scope.args.posonlyargs, *scope.args.args)]
    passed = [*_object(source, scope, call), *call.args]
    place = names.index(name) if name in names else len(passed)
    if place >= len(passed):
        raise RefusedError(f"'{name}' of '{scope.name}' in {source.path} has its default value")
    return passed[place]


def _object(source: Source, scope: Function, call: ast.Call) -> list[ast.expr]:
    """Return the expression that becomes the first parameter of a method, if it is not an argument."""
    owner = source.parents[scope]
    decorators = {last_name(node) for node in scope.decorator_list}
    if not isinstance(owner, ast.ClassDef) or "staticmethod" in decorators:
        return []
    if not isinstance(call.func, ast.Attribute):
        return [call.func]  # its class: the object does not exist yet
    explicit = last_name(call.func.value) == owner.name and "classmethod" not in decorators
    return [] if explicit else [call.func.value]


def _names(source: Source, scope: Function) -> list[str]:
    """Return the names that certainly refer to a function; a constructor has the name of its class."""
    owner = source.parents[scope]
    if scope.name != "__init__" or not isinstance(owner, ast.ClassDef):
        return [scope.name]
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    derived = [node.name for node in classes if owner.name in map(last_name, node.bases)]
    return ["__init__", owner.name, *derived]


def _parameters(scope: Function) -> list[str]:
    arguments = scope.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _class_of(source: Source, scope: Scope) -> ast.ClassDef | None:
    """Return the class whose method this is; None for functions and static methods."""
    parent = source.parents.get(scope)
    if not isinstance(parent, ast.ClassDef) or not isinstance(scope, FUNCTIONS):
        return None
    decorators = {last_name(node) for node in scope.decorator_list}
    return None if decorators & {"staticmethod", "classmethod"} else parent


def _first(scope: Scope) -> str:
    """Return the name of a method's first parameter."""
    names = _parameters(scope) if isinstance(scope, FUNCTIONS) else []
    return names[0] if names else ""


def _related(source: Source, owner: ast.ClassDef) -> list[ast.ClassDef]:
    """Return a class with its bases and subclasses in this source."""
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    bases, derived = [owner], [owner]
    for node in bases:
        names = set(map(last_name, node.bases))
        bases += [each for each in classes if each.name in names and each not in bases]
    for node in derived:
        derived += [n for n in classes if node.name in map(last_name, n.bases) and n not in derived]
    return [*bases, *derived[1:]]


def _is_self(node: ast.expr, source: Source, scope: Scope) -> bool:
    """Return whether an expression is the object whose method this is."""
    return isinstance(node, ast.Name) and _class_of(source, scope) is not None and node.id == _first(scope)


def _enclosing(source: Source, scope: ast.AST) -> Scope:
    for node in source.ancestors(scope):
        if isinstance(node, (*FUNCTIONS, ast.Module)):
            return node
    return source.tree


def _bindings(scope: Scope, name: str, owner: str = "") -> Iterator[ast.AST]:
    """Yield the nodes of a scope that bind a variable, or with `owner` its attribute `name`."""
    for node in inside(scope):
        if owner:
            if isinstance(node, ast.Attribute) and node.attr == name and last_name(node.value) == owner:
                yield from [] if isinstance(node.ctx, ast.Load) else [node]
        elif name in _names_bound(node):
            yield node


def _names_bound(node: ast.AST) -> set[str]:
    """Return the names that a node binds or deletes."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return {node.name or ""}
    return set(node.names) if isinstance(node, (ast.Global, ast.Nonlocal)) else set()


def _place(
    source: Source, scope: Scope, name: str, bindings: Sequence[ast.AST], point: ast.stmt | None
) -> Bound:
    """Return the place behind the last of the assignments that every way to `point` passes."""
    if not bindings:
        raise RefusedError(f"no assignment of '{name}' is in {source.path}")
    assigned = [_assignment(source, node, name) for node in bindings]
    last = max(assigned, key=lambda statement: (statement.lineno, statement.col_offset))
    if point is not None and (last.end_lineno or 0) >= point.lineno:
        raise RefusedError(f"'{name}' is assigned again in or after {source.path}:{point.lineno}")
    blocks = _blocks(source, point) if point is not None else [scope.body]
    chain = [
        last,
        *(node for node in source.ancestors(last) if isinstance(node, ast.stmt) and node is not scope),
    ]
    statement = next((node for node in chain if any(node in block for block in blocks)), None)
    parameter = isinstance(scope, FUNCTIONS) and name in _parameters(scope)
    around = statement is not None and point is not None and (statement.end_lineno or 0) >= point.lineno
    if statement is None or around or not (parameter or _is_certain(blocks, statement, assigned)):
        raise RefusedError(f"'{name}' is assigned in {source.path}:{last.lineno} under a condition")
    return Bound(source, name, statement)


def _assignment(source: Source, node: ast.AST, name: str) -> ast.stmt:
    """Return the statement that assigns, if it is an assignment."""
    statement = node if isinstance(node, ast.stmt) else source.parents[node]
    while isinstance(statement, (ast.Tuple, ast.List)):
        statement = source.parents[statement]
    if isinstance(statement, ast.Assign) or (isinstance(statement, ast.AnnAssign) and statement.value):
        return statement
    line = getattr(node, "lineno", 0)
    raise RefusedError(f"'{name}' gets its value in {source.path}:{line} in another way than by assignment")


def _blocks(source: Source, point: ast.stmt) -> list[list[ast.stmt]]:
    """Return the lists of statements around a statement within its scope, the innermost first."""
    blocks = [source.block_of(point)]
    for node in source.ancestors(point):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)):
            break
        if isinstance(node, ast.stmt):
            blocks.append(source.block_of(node))
    return blocks


def _is_certain(blocks: list[list[ast.stmt]], until: ast.stmt, assigned: Sequence[ast.stmt]) -> bool:
    """Return whether an assignment is made on every way through the blocks to `until`, included."""
    return any(node.lineno <= until.lineno and _assigns(node, assigned) for block in blocks for node in block)


def _assigns(node: ast.stmt, assigned: Sequence[ast.stmt]) -> bool:
    """Return whether one of the assignments is made whenever this statement completes."""
    if node in assigned:
        return True
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(_assigns(each, assigned) for each in node.body)
    if isinstance(node, ast.If):
        branches = [node.body, node.orelse]
        return all(_leaves(branch) or any(_assigns(n, assigned) for n in branch) for branch in branches)
    if isinstance(node, ast.Try):
        body = any(_assigns(each, assigned) for each in node.body)
        return body and all(_leaves(handler.body) for handler in node.handlers)
    return False


def _leaves(block: Sequence[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], (ast.Raise, ast.Return))
