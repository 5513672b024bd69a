"""Remove secrets from the texts of tables: names of regions, URLs in calls, paths."""

from __future__ import annotations

import polars as pl

from fathom.redaction import HINT, own_patterns, redact_name


def redacted(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table without secrets. Only the few texts that may contain one are looked at in Python."""
    for name, kind in frame.schema.items():
        if kind == pl.String and (changed := _changed(frame[name])):
            frame = frame.with_columns(pl.col(name).replace(changed))
    return frame


def _changed(column: pl.Series) -> dict[str, str]:
    known = column.unique().drop_nulls()
    texts = known if own_patterns() else known.filter(known.str.contains(HINT))
    return {text: new for text in texts if (new := redact_name(text)) != text}
