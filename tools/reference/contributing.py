"""The pages for contributors: CONTRIBUTING.md, and the list of decisions."""

from __future__ import annotations

from reference.markdown import ROOT, table

DECISIONS = "# Decisions\n\nWhy the design is as it is. Each is kept current when the design changes.\n\n"


def pages() -> dict[str, str]:
    """The guide for contributors, and an index of decisions."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        rows.append((path.name[:4], f"[{title}]({path.name})"))
    return {
        "contributing.md": guide,
        "decisions/index.md": DECISIONS + table(("number", "decision"), rows),
    }
