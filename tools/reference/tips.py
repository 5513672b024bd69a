"""The reference of tips, area by area, with the parts of Fathom that embody each."""

from __future__ import annotations

from fathom.diagnosis import kinds
from fathom.lab import techniques
from fathom.tips import AREAS, Tip, tips
from reference import commands
from reference.markdown import text

NAMES = {"os": "Operating system", "driver": "Driver and device", "kubernetes": "Kubernetes"}
INTRODUCTION = """# Tips

The craft's checklist: {count} tips in {areas} areas. `fathom tips` scores this machine, and `fathom tips
SOUNDING` a recorded program too: kept, broken (the costliest first), not applicable, unknown, or to be
read.

"""


def pages() -> dict[str, str]:
    """One page with every tip."""
    parts = [INTRODUCTION.format(count=len(tips()), areas=len(AREAS))]
    for area in AREAS:
        listed = [tip for tip in tips() if tip.area == area]
        parts.append(f"## {NAMES.get(area, area.capitalize())}\n\n" + "\n".join(map(_item, listed)))
    return {"reference/tips.md": "\n".join(parts)}


def _item(tip: Tip) -> str:
    by = ", ".join(_by(tip)) or text(tip.no_program)
    return f"**{text(tip.title)}.** {text(tip.text)}  \n*{by}*\n{{: #{tip.id} .tip }}\n"


def _by(tip: Tip) -> list[str]:
    group_of = {kind.id: kind.group for kind in kinds().values()}
    by = tip.by
    return [
        *(f"check [{name}](checks/{name.partition('.')[0]}.md#{name})" for name in by.checks),
        *(f"finding [{name}](findings/{group_of[name]}.md#{name})" for name in by.findings),
        *(f"technique [{name}](techniques/{techniques()[name].group}.md#{name})" for name in by.techniques),
        *(f"ceiling [{name}](ceilings.md)" for name in by.ceilings),
        *(f"measure [{name}](measures.md)" for name in by.measures),
        *(_command(name) for name in by.commands),
    ]


def _command(name: str) -> str:
    full = f"fathom {name}"
    known = {listed for listed, _ in commands.commands()}
    return (
        f"command [`{full}`](commands.md#{commands.anchor(full)})" if full in known else f"command `{full}`"
    )
