"""A file is replaced only once its new content is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.atomic import atomic_write


def test_a_file_is_replaced_at_the_end_and_kept_if_writing_fails(tmp_path):
    path = tmp_path / "kept.json"
    with atomic_write(path) as part:
        Path(part).write_text("first")
        assert not path.exists()
    with pytest.raises(ValueError, match="stop"), atomic_write(str(path)) as part:
        Path(part).write_text("second")
        raise ValueError("stop")
    assert path.read_text() == "first" and [file.name for file in tmp_path.iterdir()] == ["kept.json"]
