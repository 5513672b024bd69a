"""`llms.txt`, by the convention of llmstxt.org: the pages of the documentation, with a line about each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

MOST = 160  # characters of a description
_SKIPPED = re.compile(r"^(#|\||```|~~~|!|<|\s|[-*] |\d+\. |>|:::)")


def text(name: str, about: str, navigation: Navigation, texts: Mapping[str, str]) -> str:
    """Return the file: pages outside sections first, then a heading for each section of the navigation."""
    loose = [item for item in navigation.items if isinstance(item, Page)]
    parts = [f"# {name}\n\n> {about}", "## Start\n\n" + "\n".join(_lines(loose, texts))]
    for section in navigation.items:
        if isinstance(section, Section):
            parts.append(f"## {section.title}\n\n" + "\n".join(_lines(_pages(section), texts)))
    return "\n\n".join(parts) + "\n"


def _pages(section: Section) -> Iterator[Page]:
    for item in section.children:
        if isinstance(item, Page):
            yield item
        elif isinstance(item, Section):
            yield from _pages(item)


def _lines(pages: Iterator[Page] | list[Page], texts: Mapping[str, str]) -> Iterator[str]:
    for page in pages:
        path = page.file.src_uri
        about = described(texts.get(path, ""))
        yield f"- [{page.title}]({path})" + (f": {about}" if about else "")


def described(markdown: str) -> str:
    """Return the first sentence of the page's text, without links."""
    fenced = re.sub(r"(?ms)^(```|~~~).*?^\1\s*$", "", markdown)
    paragraphs = (part.strip() for part in fenced.split("\n\n"))
    first = next((part for part in paragraphs if part and not _SKIPPED.match(part)), "")
    plain = re.sub(r"\[([^]]+)]\([^)]*\)", r"\1", " ".join(first.split()))
    sentence = re.split(r"(?<=[.?!]) (?=[A-Z`])", plain)[0]
    return sentence if len(sentence) <= MOST else sentence[:MOST].rsplit(" ", 1)[0] + " …"
