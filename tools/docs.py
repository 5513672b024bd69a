"""Hooks of mkdocs: add the pages that are generated from the code, and fill in the output of commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import console
import reference

WITHOUT_OUTPUT = "DOCS_WITHOUT_OUTPUT"  # set where only links matter, which saves most of the time


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Run the commands of `console` blocks that show no output, and add it."""
    return markdown if WITHOUT_OUTPUT in os.environ else console.filled(markdown)
