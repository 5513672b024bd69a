"""Refuse phrases and names that read as translated: `tools/words.toml` lists them, `make check` runs this.

    python tools/words.py            # all files that the list names
    python tools/words.py README.md  # these files alone, checked yet or not

Prints `PATH:LINE: "TEXT": write INSTEAD` for each, and exits with status 1 if there is any.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
ALLOWED = "words: ok"
_CODE = re.compile(r"^```.*?^```|``.+?``|`[^`\n]*`", re.S | re.M)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_GAP = r"[\s#/]+"  # a blank in a phrase: also a line break, and the mark of a comment after it


@dataclass(frozen=True)
class Phrase:
    """A pattern over prose."""

    pattern: re.Pattern[str]
    instead: str


@dataclass(frozen=True)
class Name:
    """Words that identifiers do not hold, or that they are not if `alone`."""

    words: frozenset[str]
    instead: str
    alone: bool = False

    def matches(self, identifier: str) -> bool:
        """Whether the identifier breaks the rule."""
        parts = {identifier.strip("_")} if self.alone else set(_PART.findall(identifier))
        return not self.words.isdisjoint(part.lower() for part in parts)


@dataclass(frozen=True)
class Text:
    """A part of a file: prose or an identifier, or all of a document."""

    text: str
    line: int
    end: int
    is_name: bool = False
    is_document: bool = False


@dataclass(frozen=True)
class Hit:
    """A place that breaks a rule."""

    line: int
    end: int
    text: str
    instead: str


def rules() -> tuple[list[Phrase], list[Name]]:
    """The rules of the list."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    phrases = [Phrase(_compiled(row["pattern"]), row["instead"]) for row in listed["phrase"]]
    names = [Name(frozenset(r["words"]), r["instead"], r.get("alone", False)) for r in listed["name"]]
    return phrases, names


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", _GAP), re.I)


def hits(path: Path, phrases: list[Phrase], names: list[Name]) -> list[Hit]:
    """All places of a file that break a rule and are not marked as allowed, in order of lines."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    module = Text(path.stem, 1, 1, is_name=True)
    texts = [module, *python(source)] if path.suffix == ".py" else [plain(source)]
    broken = {hit for text in texts for hit in _broken(text, phrases, names)}
    refused = (hit for hit in broken if not _allowed(lines, hit))
    return sorted(refused, key=lambda hit: (hit.line, hit.text))


def _broken(text: Text, phrases: list[Phrase], names: list[Name]) -> Iterator[Hit]:
    if text.is_name:
        wrong = (name for name in names if name.matches(text.text))
        yield from (Hit(text.line, text.end, text.text, name.instead) for name in wrong)
        return
    prose = _CODE.sub(lambda code: re.sub(r"[^\n]", "~", code[0]), text.text)
    for phrase in phrases:
        for match in phrase.pattern.finditer(prose):
            line = min(text.line + prose.count("\n", 0, match.start()), text.end)
            end = line if text.is_document else text.end
            yield Hit(line, end, " ".join(match[0].split()), phrase.instead)


def _allowed(lines: list[str], hit: Hit) -> bool:
    """Whether the hit's line, the one above, or the last one of its string carries the mark."""
    near = {hit.line - 1, hit.line, hit.end}
    return any(ALLOWED in lines[number - 1] for number in near if 0 < number <= len(lines))


def plain(source: str) -> Text:
    """A document, or a file whose comments and values are read as they are."""
    return Text(source, 1, source.count("\n") + 1, is_document=True)


def python(source: str) -> Iterator[Text]:
    """Strings with blanks, comments and defined names of a module."""
    yield from _comments(source)
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        if name := _defined(node):
            yield Text(name, line, line, is_name=True)
        elif id(node) not in inside and " " in (text := _string(node)):
            yield Text(text, line, end)


def _comments(source: str) -> Iterator[Text]:
    """Comments; those on adjacent lines, with nothing before them, are one text."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and (token.start[0] != block[-1].start[0] + 1 or token.start[1] != block[-1].start[1]):
            yield _block(block)
            block = []
        block.append(token)
    if block:
        yield _block(block)


def _block(block: list[tokenize.TokenInfo]) -> Text:
    text = "\n".join(token.string.removeprefix("#").strip() for token in block)
    return Text(text, block[0].start[0], block[-1].start[0])


def _string(node: ast.AST) -> str:
    """A string, or an f-string with `{}` for its values; empty for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_string(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def _defined(node: ast.AST) -> str:
    """The name that a node defines, else an empty one."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""


def checked() -> dict[Path, tuple[bool, bool]]:
    """The files of the list, and whether their phrases and their names are checked."""
    files = tomllib.loads(LIST.read_text(encoding="utf-8"))["files"]
    phrases_later, names_later = _listed(files["phrases_later"]), _listed(files["names_later"])
    return {
        path: (path not in phrases_later, path not in names_later)
        for path in sorted(_listed(files["checked"]) - (phrases_later & names_later) - {LIST})
    }


def _listed(patterns: list[str]) -> set[Path]:
    """Files that match; `**` at the end means all below."""
    deep = (f"{pattern}/*" if pattern.endswith("**") else pattern for pattern in patterns)
    return {path for pattern in deep for path in ROOT.glob(pattern) if path.is_file()}


def main(arguments: list[str]) -> int:
    """Print every hit. Returns the exit status."""
    phrases, names = rules()
    chosen = {Path(argument).resolve(): (True, True) for argument in arguments} or checked()
    count = 0
    for path, (prose, identifiers) in chosen.items():
        for hit in hits(path, phrases if prose else [], names if identifiers else []):
            count += 1
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            print(f'{shown}:{hit.line}: "{hit.text}": write {hit.instead}')
    if count:
        print(f"{count} phrases or names to rewrite; `{ALLOWED}` in a comment excuses one in place.")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
