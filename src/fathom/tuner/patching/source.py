"""A source file of the program: its text, its syntax tree, and edits of exact spans."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fathom.tuner.patching.sites import Frame

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BOM = "\ufeff"
SPACING = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)


class RefusedError(Exception):
    """A setting cannot be written into the source; the message is the reason."""


@dataclass(frozen=True)
class Edit:
    """Replace the characters from `start` to `end` of a file by `text`; `order` counts at the same place."""

    path: str
    start: int
    end: int
    text: str
    order: int = 2


class Source:
    """A file as it was read. Raises RefusedError if it cannot be edited safely."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        try:
            self.text = data.decode()
        except UnicodeDecodeError:
            raise RefusedError(f"{path} is not encoded in UTF-8") from None
        self._bom = len(BOM) if self.text.startswith(BOM) else 0
        if "\r" in self.text.replace("\r\n", ""):
            raise RefusedError(f"{path} has line endings that a patch cannot keep")
        try:
            self.tree = ast.parse(data)
        except (SyntaxError, ValueError):
            raise RefusedError(f"{path} is not valid Python for Fathom's interpreter") from None
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of each line."""
        starts = [self._bom]
        for place, character in enumerate(self.text):
            if character == "\n":
                starts.append(place + 1)
        return [*starts, len(self.text)]

    @cached_property
    def newline(self) -> str:
        """The ending of its lines."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def line(self, number: int) -> str:
        """Return a line with its ending."""
        return self.text[self._starts[number - 1] : self.line_end(number)]

    def line_start(self, number: int) -> int:
        """Return the offset of a line."""
        return self._starts[number - 1]

    def line_end(self, number: int) -> int:
        """Return the offset behind a line's ending."""
        return self._starts[number] if number < len(self._starts) else len(self.text)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and a column in bytes, as a syntax tree counts them."""
        return self._starts[line - 1] + len(self.line(line).encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def call_at(self, frame: Frame, names: Sequence[str] = ()) -> ast.Call:
        """Return the call that a frame is in; if only its line is known (Python 3.10), `names` decide."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        if frame.end_line is not None:
            calls = [node for node in calls if _is_at(node, frame)]
        else:
            calls = [node for node in calls if node.lineno <= frame.line <= (node.end_lineno or 0)]
            calls = [node for node in calls if not names or last_name(node.func) in names]
        if len(calls) != 1 or self.text[self.span(calls[0])[1] - 1] != ")":
            raise RefusedError(f"the call in {self.path}:{frame.line} cannot be identified")
        return calls[0]

    def scope_of(self, frame: Frame) -> Function | ast.Module:
        """Return the function that a frame runs, or the module."""
        scopes = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, (*FUNCTIONS, ast.Module)) and self.is_scope(node, frame)
        ]
        if len(scopes) != 1:
            raise RefusedError(f"the function at {self.path}:{frame.begins} cannot be identified")
        return scopes[0]

    def is_scope(self, scope: Function | ast.Module, frame: Frame) -> bool:
        """Return whether a frame runs this function or module."""
        if isinstance(scope, ast.Module):
            return frame.function == "<module>"
        return (scope.name, first_line(scope)) == (frame.function, frame.begins)

    def statement_at(self, frame: Frame, scope: Function | ast.Module) -> ast.stmt:
        """Return the innermost statement of a scope that a frame is in."""
        inside = [
            node
            for node in statements(scope)
            if node.lineno <= frame.line and (frame.end_line or frame.line) <= (node.end_lineno or 0)
        ]
        if not inside:
            raise RefusedError(f"the statement in {self.path}:{frame.line} cannot be identified")
        return min(inside, key=lambda node: ((node.end_lineno or 0) - node.lineno, -node.col_offset))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield a node's parents, the innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements that a statement is in."""
        parent = self.parents[statement]
        blocks = (value for _, value in ast.iter_fields(parent) if isinstance(value, list))
        return next(block for block in blocks if statement in block)

    def indent_of(self, statement: ast.stmt) -> str:
        """Return the white space before a statement. Raises RefusedError if there is more than that."""
        line = self.line(statement.lineno)
        indent = line[: self.span(statement)[0] - self.line_start(statement.lineno)]
        if indent.strip():
            raise RefusedError(f"{self.path}:{statement.lineno} has several statements in a line")
        return indent

    def after(self, statement: ast.stmt, lines: Sequence[str], order: int = 2) -> Edit:
        """Return the insertion of lines after a statement."""
        indent, end = self.indent_of(statement), statement.end_lineno or statement.lineno
        rest = self.text[self.span(statement)[1] : self.line_end(end)].strip().removeprefix(";").lstrip()
        if rest and not rest.startswith("#"):
            raise RefusedError(f"{self.path}:{end} has several statements in a line")
        at = self.line_end(end)
        if self.text[at - 1] == "\n":
            text = "".join(f"{indent}{line}{self.newline}" for line in lines)
            return Edit(self.path, at, at, text, order)
        text = "".join(f"{self.newline}{indent}{line}" for line in lines)
        return Edit(self.path, at, at, text, order)

    def before(self, statement: ast.stmt, lines: Sequence[str], order: int = 2) -> Edit:
        """Return the insertion of lines before a statement."""
        indent, at = self.indent_of(statement), self.line_start(first_line(statement))
        text = "".join(f"{indent}{line}{self.newline}" for line in lines)
        return Edit(self.path, at, at, text, order)

    @cached_property
    def tokens(self) -> list[tuple[int, int, str]]:
        """The tokens that are not whitespace: start, end and text."""
        read = io.StringIO(self.text[self._bom :], newline="").readline
        return [
            (self._starts[t.start[0] - 1] + t.start[1], self._starts[t.end[0] - 1] + t.end[1], t.string)
            for t in tokenize.generate_tokens(read)
            if t.type not in SPACING and t.string
        ]


def _is_at(call: ast.Call, frame: Frame) -> bool:
    """Return whether a frame is in this call. Python counts a method's call from the line of its name on."""
    if (call.end_lineno, call.end_col_offset) != (frame.end_line, frame.end_column):
        return False
    func = call.func
    of_method = isinstance(func, ast.Attribute) and frame.line == func.end_lineno != func.lineno
    return of_method or (call.lineno, call.col_offset) == (frame.line, frame.column)


def first_line(node: ast.stmt) -> int:
    """Return the line where a statement begins, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope, without those of functions and classes in it."""
    for node in inside(scope):
        if isinstance(node, ast.stmt):
            yield node


def inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(scope, FUNCTIONS) and child in (scope.args, scope.returns, *scope.decorator_list):
            continue
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield from inside(child)


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with all edits, identical edits made once. Raises RefusedError if edits overlap."""
    ordered = sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end, edit.order))
    parts, at = [], 0
    for edit in ordered:
        if edit.start < at:
            raise RefusedError(f"two settings change the same place in {edit.path}")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])
