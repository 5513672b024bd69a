"""The size of a batch, as a loader delivers it or a model gets it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fathom.probe.hooks.batch import size  # noqa: E402


def test_a_vector_is_a_batch_of_a_loader_but_not_of_a_model() -> None:
    vector, images = torch.zeros(9), torch.zeros(4, 3, 8, 8)
    assert size(vector) == (9, None) and size(vector, least=2) == (None, None)
    assert size((vector, images), least=2) == (None, None)
    assert size([images, vector], least=2) == (4, None)
    assert size({"input_ids": torch.zeros(2, 6)}, least=2) == (2, 12)
