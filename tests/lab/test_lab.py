"""The lab around its techniques: what runs here, what is kept, what the commands print."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.diagnosis.kinds import Kind, kinds
from fathom.errors import BadInputError
from fathom.lab import Here, Kept, Outcome, chosen, here, listed, naming, recall, run, techniques, why_not
from fathom.lab.operation import Needs
from fathom.lab.running import keep, place
from fathom.lab.technique import Technique, techniques_of
from fathom.machine import MachineFileError
from fathom.referee import Comparison, Pair, Refusal, Settings, Timing, Verdict
from fathom.referee.verdict import Fraction
from fathom.report import print_outcome, print_technique, print_techniques

CPU = Here(None, "there is none", "2.11.0+cpu", lambda package: False)
H200 = Here(9.0, "", "2.11.0+cu130", lambda package: True)
MACHINE: dict[str, Any] = {"fingerprint": "0123456789abcdef", "gpus": [], "versions": {"torch": "2.11.0"}}
SAMPLE = '''"""A sample of an operation."""


def inputs(seed):
    return seed


def unchanged(x):
    return x


def a_sample(x):
    """title: A sample
    pair: {group: memory, plain: unchanged}
    saves: time
    idea: a thing is done once and for all, not again and again
    cost: a little memory, in which what was done is kept
    not_when: what is done differs from call to call, or is cheap
    shows:
      calls: many → one
    proof: {latency: included}
    """
    return x
'''


def test_programs_without_a_gpu_get_no_technique_that_needs_one():
    assert kinds()["host-python"].technique() == "cuda-graph"
    assert kinds()["host-python"].technique(processor=True) is None
    assert kinds()["input-cpu-preprocessing"].technique(processor=True) == "batched-transform"


@pytest.mark.parametrize("kind", kinds().values(), ids=list(kinds()))
def test_a_kind_has_techniques_or_says_why_there_are_none(kind: Kind) -> None:
    assert kind.techniques or (20 < len(kind.no_technique) < 200 and kind.no_technique.endswith("."))


@pytest.mark.parametrize("technique", techniques().values(), ids=list(techniques()))
def test_a_technique_has_findings_or_says_why_there_are_none(technique: Technique) -> None:
    header = technique.header
    assert bool(header.findings) != bool(header.no_finding)
    assert header.findings or (20 < len(header.no_finding) < 200 and header.no_finding.endswith("."))
    assert set(header.findings) <= kinds().keys()


@pytest.fixture
def technique(tmp_path: Path) -> Technique:
    (tmp_path / "sample.py").write_text(SAMPLE)
    return only(tmp_path / "sample.py")


def only(path: Path) -> Technique:
    (technique,) = techniques_of(path)
    return technique


def verdict(word: str = "faster", ratio: float = 0.5) -> Verdict:
    slow = Timing(2e6, [2e6], 10, ceiling=Fraction(0.4, "hbm", 1e6))
    quick = Timing(1e6, [1e6], 10, ceiling=Fraction(0.8, "hbm", 1e6))
    compared = Comparison("cold", word, ratio, [0.49, 0.51], 6, True, slow, quick)
    return Verdict(word, ratio, [0.49, 0.51], [], 0.01, timings=[compared])


class Referee:
    """Says what it was told to say, and notes what it was asked."""

    def __init__(self, says: Verdict | Exception) -> None:
        self.says, self.asked = says, list[tuple[Pair, Settings]]()

    def __call__(self, pair: Pair, settings: Settings) -> Verdict:
        self.asked.append((pair, settings))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


# Techniques that run here


def tooled(version: str) -> Here:
    return Here(9.0, "", "2.11.0", lambda package: True, lambda tool: version)


def test_every_library_that_a_technique_imports_is_named_so_that_it_is_skipped_without() -> None:
    known = {*sys.stdlib_module_names, "torch", "numpy", "fathom", "__future__"}
    for technique in techniques().values():
        body = technique.operation.tree.body  # all of it: the file is imported for any of its techniques
        direct = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
        parts = [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
        for module in {name for name in (*direct, *parts) if name.partition(".")[0] not in known}:
            named = [name for name in technique.needs.packages if f"{module}.".startswith(f"{name}.")]
            assert named, f"{technique.name} imports {module}"
    bare = Here(9.0, "", "2.11.0", lambda package: False)
    assert why_not(techniques()["cutile-softmax"].needs, bare) == "it needs cuda-tile, which is not installed"
    assert why_not(techniques()["warp-tiles"].needs, bare) == "it needs warp-lang, which is not installed"


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("echo 'Cuda compilation tools, release 13.3, V13.3.33'", "13.3"),
        ("echo nothing of the kind", ""),
        ("echo 'release 13.3' >&2; exit 1", ""),
    ],
)
def test_a_tool_of_the_toolkit_is_asked_for_its_version(
    says: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "sometool"
    tool.write_text(f"#!/bin/sh\n{says}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    at = Here(9.0, "", "2.11.0")
    assert at.version("sometool") == version and at.version("othertool") == ""


@pytest.mark.parametrize(
    ("needs", "at", "said"),
    [
        (Needs(), CPU, None),
        (Needs(gpu=True), CPU, "it needs a GPU: there is none"),
        (Needs(capability=9.0), CPU, "it needs a GPU: there is none"),
        (Needs(gpu=True, capability=9.0), H200, None),
        (Needs(capability=10.0), H200, "it needs compute capability 10.0, here is 9.0"),
        (Needs(packages=("PIL",)), CPU, "it needs pillow, which is not installed"),
        (Needs(torch="2.11"), H200, None),
        (Needs(torch="2.12"), H200, "it needs torch 2.12, here is 2.11.0+cu130"),
        (Needs(), Here(9.0, "", ""), "it needs torch, which is not installed"),
        (
            Needs(tools={"tileiras": "13.3"}),
            tooled(""),
            "it needs tileiras 13.3 of CUDA's toolkit, which is not installed",
        ),
        (Needs(tools={"tileiras": "13.3"}), tooled("13.2"), "it needs tileiras 13.3, here is 13.2"),
        (Needs(tools={"tileiras": "13.3"}), tooled("13.10"), None),
    ],
)
def test_why_a_technique_does_not_run_here(needs: Needs, at: Here, said: str | None) -> None:
    assert why_not(needs, at) == said


def test_a_machine_without_a_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    at = here({"gpus": [], "why_no_gpu": "the driver is not loaded"})
    assert at.device == "cpu" and at.why_no_gpu == "the driver is not loaded"
    monkeypatch.setattr("fathom.lab.surroundings._torch_sees_it", lambda: False)
    assert here({"gpus": [{"compute_capability": "9.0"}]}).capability is None
    monkeypatch.setattr("fathom.lab.surroundings._torch_sees_it", lambda: True)
    result = here({"gpus": [{"compute_capability": "9.0"}]})
    assert result.capability == 9.0 and result.device == "cuda"


def test_kernels_need_what_compiles_them() -> None:
    needs = techniques()["transpose"].needs
    assert needs.gpu and "cuda.core" in needs.packages
    assert techniques()["triton-softmax"].needs.gpu
    assert not techniques()["batched-products"].needs.gpu


# Headers


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def plain(): ...",
        '"""just words"""',
        SAMPLE.replace("title: A", "title: ["),
        SAMPLE.replace("idea:", "idee:"),
        SAMPLE.replace("many → one", "fewer"),
        SAMPLE.replace("latency: included", "latency: sometimes"),
        SAMPLE.replace("proof: {latency: included}", "needs: {gpus: 3}"),
        SAMPLE + "\0",
        SAMPLE + "\ndef (",
    ],
)
def test_a_damaged_header_is_told_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(BadInputError, match=r"bad\.py"):
        techniques_of(path)
    with pytest.raises(BadInputError, match="nowhere"):
        techniques_of(tmp_path / "nowhere.py")


@pytest.mark.parametrize("name", ["inputs", "unchanged"])
def test_a_technique_has_both_forms_and_inputs(tmp_path: Path, name: str) -> None:
    path = tmp_path / "half.py"
    path.write_text(SAMPLE.replace(f"def {name}", "def another"))
    with pytest.raises(BadInputError, match=f"'{name}'"):
        techniques_of(path)


def test_a_technique_may_name_its_own_inputs_reference_and_work(technique: Technique) -> None:
    more = "\n\ndef narrow(seed):\n    return 1\n\n\ndef exact(x):\n    return x\n"
    own = SAMPLE.replace("plain: unchanged", "plain: unchanged, inputs: narrow, reference: exact")
    technique.path.write_text(own + more)
    named = only(technique.path)
    assert (named.pair.inputs, named.pair.reference) == (f"{named.path}:narrow", f"{named.path}:exact")
    assert technique.pair.inputs == f"{named.path}:inputs" and technique.pair.reference is None
    technique.path.write_text(own)
    with pytest.raises(BadInputError, match="'narrow'"):
        techniques_of(technique.path)


WITH_KERNELS = SAMPLE.replace("return seed", "return seed, kernels").replace(
    "\n\n\ndef inputs", '\nkernels = Source(__file__)\nothers = Source(__file__, "others")\n\n\ndef inputs'
)


def test_its_digest_changes_with_its_kernels_and_what_they_include(
    technique: Technique, monkeypatch: pytest.MonkeyPatch
) -> None:
    technique.path.write_text(WITH_KERNELS)
    seen = {technique.digest, only(technique.path).digest}
    technique.path.with_suffix(".cu").write_text("// one")
    seen.add(only(technique.path).digest)
    technique.path.with_suffix(".cu").write_text("// two")
    seen.add(only(technique.path).digest)
    technique.path.with_name("others.cu").write_text("// of other techniques")
    seen.add(only(technique.path).digest)
    included = technique.path.parent / "include"
    included.mkdir()
    (included / "a.cuh").write_text("")
    monkeypatch.setattr("fathom.lab.technique.INCLUDE", included)
    seen.add(only(technique.path).digest)
    assert len(seen) == 5 and only(technique.path).sources[1:] == [technique.path.with_suffix(".cu")]


def test_its_digest_is_of_what_is_proven_not_of_what_is_said_about_it(technique: Technique) -> None:
    text = technique.path.read_text()

    def changed(old: str, new: str) -> bool:
        assert old in text
        technique.path.write_text(text.replace(old, new))
        return only(technique.path).digest != technique.digest

    assert not changed("A sample\n", "Another title\n")
    assert not changed("def unchanged", "def of_another_technique():\n    return 1\n\n\ndef unchanged")
    assert changed("latency: included", "latency: removed")
    assert changed("return seed", "return seed + 1")
    assert changed("def unchanged", "print()\n\n\ndef unchanged"), (
        "statements that run at the import count too"
    )


def test_choosing_by_name_and_group() -> None:
    assert [t.name for t in chosen(["bank_padding", "transpose"])] == ["bank-padding", "transpose"]
    assert {t.group for t in chosen(["memory"])} == {"memory"}
    with pytest.raises(BadInputError, match="similar ones: transpose"):
        chosen(["transpos"])
    assert [t.name for t in naming("kernels-atomics")] == ["distributed-bins", "private-histogram"]


# Running and keeping


def proven(technique: Technique, folder: Path, referee: Referee, **more: Any) -> Outcome:
    (outcome,) = run([technique], machine=MACHINE, at=CPU, prove=referee, folder=folder, **more)
    return outcome


def test_a_verdict_is_kept_until_the_technique_changes(technique: Technique, tmp_path: Path) -> None:
    referee = Referee(verdict())
    first = proven(technique, tmp_path, referee, budget_s=3.0)
    assert first.state == "proven" and first.kept is not None and not first.bad
    pair, settings = referee.asked[0]
    assert pair.name == "a-sample" and (settings.latency, settings.budget_s) == ("included", 3.0)
    again = proven(technique, tmp_path, referee)
    assert again.state == "kept" and again.kept == first.kept and len(referee.asked) == 1
    assert proven(technique, tmp_path, referee, force=True).state == "proven" and len(referee.asked) == 2
    technique.path.write_text(SAMPLE.replace("return seed", "return 7"))
    assert proven(only(technique.path), tmp_path, referee).state == "proven"


def test_another_machine_knows_nothing_of_it(technique: Technique, tmp_path: Path) -> None:
    proven(technique, tmp_path, Referee(verdict()))
    assert recall(technique, "fedcba9876543210", tmp_path) is None
    kept = recall(technique, MACHINE["fingerprint"], tmp_path)
    assert kept is not None and (kept.device, kept.versions) == ("cpu", {"torch": "2.11.0"})


def test_what_cannot_run_is_skipped_and_what_fails_is_told(technique: Technique, tmp_path: Path) -> None:
    failing = Referee(BadInputError("The baseline cannot be measured: it raised."))
    outcome = proven(technique, tmp_path, failing)
    assert (outcome.state, outcome.bad) == ("failed", True) and "cannot be measured" in outcome.reason
    header = msgspec.structs.replace(technique.header, needs=Needs(gpu=True))
    needing = Technique(technique.operation, technique.function, header)
    outcome = proven(needing, tmp_path, failing)
    assert (outcome.state, outcome.bad) == ("skipped", False) and len(failing.asked) == 1
    refused = proven(technique, tmp_path, Referee(verdict("refused")))
    assert refused.bad


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"technique": "x"}', b"\0" * 99, b"[" * 10_000])
def test_a_damaged_result_is_reported_and_proven_again(
    technique: Technique, tmp_path: Path, content: bytes
) -> None:
    path = place(technique.name, MACHINE["fingerprint"], tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(MachineFileError, match="delete it"):
        recall(technique, MACHINE["fingerprint"], tmp_path)
    said: list[str] = []
    outcome = proven(technique, tmp_path, Referee(verdict()), say=said.append)
    assert outcome.state == "proven" and any("delete it" in text for text in said)


def test_a_store_that_cannot_be_written_says_what_to_do(technique: Technique, tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a file where a folder should be")
    with pytest.raises(MachineFileError, match="FATHOM_HOME"):
        keep(Kept(technique.name, technique.digest, "cpu", 0, {}, verdict()), "f", tmp_path)


# The screen


def message_of(call: Any, *arguments: Any, width: int = 90) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    call(*arguments, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_table_fits_and_shows_what_was_gained(
    technique: Technique, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path))
    proven(technique, tmp_path, Referee(verdict()))
    result = [listed(t, MACHINE["fingerprint"], CPU, print) for t in (technique, *techniques().values())]
    last = result[0].last
    assert last is not None and last.ratio == 0.5 and last.tuned_of_ceiling == 0.8
    for width in (80, 120):
        lines = message_of(print_techniques, result, width=width).splitlines()
        assert max(map(len, lines)) <= width
    heads = [lines[0].index(head) for head in ("saves", "here")]
    assert lines[0].startswith("technique") and all(lines[2][at - 1] == " " != lines[2][at] for at in heads)
    assert lines[2][heads[1] :].startswith("faster 2.00×") and any("needs a GPU" in line for line in lines)
    assert message_of(print_techniques, []) == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_says_what_a_technique_lacks(width: int) -> None:
    """Whole, whatever it is: the last word is the one to act on."""
    bare = Here(8.0, "", "2.13.0", has=lambda _: False, version=lambda _: "")
    every = [listed(t, MACHINE["fingerprint"], bare, print) for t in techniques().values()]
    lines = message_of(print_techniques, every, width=width)
    for row in every:
        if row.why_not:
            assert re.split("[:,]", row.why_not)[0].removeprefix("it ") in lines, row.why_not
    assert "needs jax\n" in lines and "needs warp-lang\n" in lines


def test_an_outcome_shows_both_fractions_of_the_ceiling(technique: Technique, tmp_path: Path) -> None:
    text = message_of(print_outcome, proven(technique, tmp_path, Referee(verdict())))
    assert "2.00×" in text and "1.96 to 2.04×" in text and "40 % → 80 % of the ceiling" in text
    bad = verdict("refused")
    bad.reasons = [Refusal("wrong-result", "by 3")]
    text = message_of(print_outcome, proven(technique, tmp_path, Referee(bad), force=True))
    assert "its result is wrong (wrong-result): by 3" in text
    assert "skipped: no GPU" in message_of(print_outcome, Outcome("x", "skipped", "no GPU"))


def test_a_page_holds_the_whole_header(technique: Technique) -> None:
    text = message_of(print_technique, technique)
    for part in (
        "A sample",
        "once and for all",
        "a little memory",
        "differs from call to call",
        "sample.py",
    ):
        assert part in text


def test_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fathom.lab.running.prove_pair", lambda *_: pytest.fail("nothing runs here"))
    call = lambda *words: CliRunner().invoke(app, ["lab", *words])  # noqa: E731
    document = json.loads(call("list", "--json").stdout)
    assert [row["name"] for row in document] == list(techniques()) and document[0].keys() >= {
        "why_not",
        "last",
    }
    page = json.loads(call("show", "transpose", "--json").stdout)
    assert page["needs"]["packages"] == ["cuda.core"] and len(page["sources"]) == 2
    monkeypatch.setattr("fathom.lab.running.here", lambda _: CPU)
    done = call("run", "transpose", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)[0]["state"] == "skipped"
    assert call("run").exit_code == 2 and call("run", "transpose", "--all").exit_code == 2
    assert call("show", "nothing").exit_code == 2


@pytest.mark.parametrize(("word", "ratio"), [("slower", 1.25), ("faster", 0.5)])
def test_what_is_gained_besides_time_is_told(word: str, ratio: float) -> None:
    kept = Kept("checkpointed-layers", "", "cuda", 0, {}, verdict(word, ratio))
    text = message_of(print_outcome, Outcome("checkpointed-layers", "proven", kept=kept))
    assert f"{word} {1 / ratio:.2f}×, for memory" in text


@pytest.mark.parametrize(("word", "said"), [("slower", True), ("same", True), ("faster", False)])
def test_a_chip_on_which_it_gains_nothing_is_told(word: str, said: bool) -> None:
    kept = Kept("descriptor-matmul", "", "cuda", 0, {}, verdict(word, 1.04))
    text = message_of(print_outcome, Outcome("descriptor-matmul", "proven", kept=kept))
    assert ("expected on H200" in text) == said
    assert "no gain on" in message_of(print_technique, techniques()["descriptor-matmul"])
    assert "no gain on" not in message_of(print_technique, techniques()["transpose"])
