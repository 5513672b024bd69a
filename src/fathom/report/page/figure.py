"""Figures of the page: Vega-Lite through altair, each with the data that it shows as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from fathom import cache as kept
from fathom.errors import BadInputError, file_error
from fathom.visible import visible_line

EXTRA = "Figures need altair and vl-convert: pip install 'fathom-perf[report]'."
WIDTH = 900  # of saved pictures, in pixels; on the page, figures are as wide as their column
_INK, _FAINT, _PAPER = "#1c2430", "#d9dee5", "#ffffff"
Row = TypeVar("Row", bound=Mapping[str, object])
Spec = dict[str, Any]  # of Vega-Lite


class Figure(NamedTuple, Generic[Row]):
    """A figure: `draw` returns an altair chart of `rows`, and `description` says what it shows.

    `table` is the same data as text, for readers without the picture: a header, then rows of cells.
    """

    id: str
    title: str
    description: str
    rows: list[Row]
    draw: Callable[[list[Row]], Any]
    table: list[list[str]]
    zooms: bool = False


def available() -> bool:
    """Return whether figures can be drawn."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def specification(figure: Figure[Row], width: int | str = "container") -> Spec:
    """Return the figure as a Vega-Lite specification. Tests validate it: here that would take seconds."""
    from altair.utils.schemapi import debug_mode

    rows = [cast(Row, {key: _shown(value) for key, value in row.items()}) for row in figure.rows]
    with debug_mode(False):
        spec: Spec = figure.draw(rows).properties(width=width).to_dict(validate=False)
    spec.pop("$schema", None)
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec.get("config", {}).pop("view", None)
    return spec


def _shown(value: object) -> object:
    return visible_line(value) if isinstance(value, str) else value


def embedded(spec: Spec) -> str:
    """Return JSON that is safe inside a `<script>`: no text in it can end the element."""
    text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False)
    for letter, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(letter, code)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, which loads nothing."""
    name = kept.key("vega", version("vl-convert-python"))
    code = (kept.read(name) or b"").decode() or _bundled()
    kept.write(name, code.encode())
    return code


def _bundled() -> str:
    """Return the script from vl-convert, which takes seconds."""
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def save(figures: Iterable[Figure[Any]], folder: Path) -> list[Path]:
    """Write each figure as SVG and PNG. Raises BadInputError without altair, or if it cannot be written."""
    if not available():
        raise BadInputError(EXTRA)
    import vl_convert

    saved = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            spec = specification(figure, WIDTH) | {"config": _light(), "background": _PAPER, "padding": 12}
            picture, image = folder / f"{figure.id}.svg", folder / f"{figure.id}.png"
            picture.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
            image.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
            saved += [picture, image]
    except OSError as error:
        raise BadInputError(file_error(folder, error, "written")) from None
    return saved


def _light() -> Spec:
    words = {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 11, "titleFontSize": 11}
    axis = {**words, "gridColor": _FAINT, "domainColor": _FAINT, "tickColor": _FAINT, "titleFontWeight": 500}
    return {"font": "sans-serif", "axis": axis, "legend": words, "view": {"stroke": None},
            "text": {"color": _INK}, "style": {"ink": {"fill": _INK}}}  # fmt: skip


def altair() -> Any:
    """Return the module altair, which no other command needs."""
    import altair as alt

    alt.data_transformers.disable_max_rows()
    return alt


def coloured(alt: Any, field: str, colours: dict[str, str], title: str | None = None, **more: Any) -> Any:
    """Return a colour channel with a fixed colour for each name; its legend is above the figure."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    legend = alt.Legend(orient="top", title=title, columns=4, symbolType="square", labelLimit=160)
    return alt.Color(f"{field}:N", scale=scale, legend=more.pop("legend", legend), **more)


def thinned(count: int, most: int) -> Sequence[int]:
    """Return at most `most` evenly spaced positions of `count`, the first and the last among them."""
    if count <= most:
        return range(count)
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
