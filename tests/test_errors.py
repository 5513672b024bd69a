"""The sentence that says why a program ended."""

from __future__ import annotations

import traceback

import pytest

from fathom.errors import raised

OVERWRITTEN = (  # torch's words
    "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. "
    'Stack trace: File "model.py", line 9, in forward\n    k_embed = (k * cos) + (rotate_half(k) * sin). '
    "To prevent overwriting, clone the tensor outside of torch.compile() "
    "or call torch.compiler.cudagraph_mark_step_begin() before each model invocation."
)


def output(message: str) -> str:
    """Return the output of a program that raises this message while it handles another error."""
    try:
        try:
            _ = {}["key"]
        except KeyError:
            raise RuntimeError(message)  # noqa: B904
    except RuntimeError:
        return f"step 1\n{traceback.format_exc()}"


@pytest.mark.parametrize("rank", ["", "[rank0]: "])
def test_the_exception_is_shown_with_its_advice_and_without_its_stack(rank: str) -> None:
    text = "\n".join(rank + line for line in output(OVERWRITTEN).splitlines())
    says = raised(text)
    assert says.startswith(
        "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten"
    )
    assert says.endswith("cudagraph_mark_step_begin() before each model invocation.")
    assert "k_embed" not in says and "Stack trace" not in says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (output("CUDA out of memory. Tried to allocate 2 GiB."), "RuntimeError: CUDA out of memory."),
        ("loading\nSegmentation fault\n", "Segmentation fault"),
        ("Traceback (most recent call last):\n  File", "  File"),
        ("", "no message"),
    ],
)
def test_without_more_it_is_the_first_sentence_or_the_last_line(text: str, says: str) -> None:
    assert raised(text) == says
