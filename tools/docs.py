"""Hooks of mkdocs: add the pages that are generated from the code, fill in the output of commands, and write
`llms.txt` with the pages as Markdown beside it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

import console
import llms
import reference

WITHOUT_OUTPUT = "DOCS_WITHOUT_OUTPUT"  # set where only links matter, which saves most of the time
_texts: dict[str, str] = {}  # of each page, by its path under docs/
_navigation: list[Navigation] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    """Keep the order of the pages for `llms.txt`."""
    _navigation[:] = [nav]
    return nav


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Run the commands of `console` blocks that show no output, and add it."""
    text = markdown if WITHOUT_OUTPUT in os.environ else console.filled(markdown)
    _texts[page.file.src_uri] = text
    return text


def on_post_build(config: MkDocsConfig) -> None:
    """Write every page as Markdown, and `llms.txt`, which lists them."""
    site = Path(config.site_dir)
    for path, text in _texts.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    listed = llms.text(config.site_name, config.site_description or "", _navigation[0], _texts)
    (site / "llms.txt").write_text(listed, encoding="utf-8")
