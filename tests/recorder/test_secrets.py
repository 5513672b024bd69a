"""Secrets of 20 kinds, planted in a real program, are in no file that Fathom keeps."""

from __future__ import annotations

import gzip
import stat
import zipfile
from pathlib import Path

import polars as pl
import pytest

from fathom.cli.console import explain
from fathom.errors import BadInputError
from fathom.redaction import HIDDEN, own_patterns, redact_all, redact_name, redact_text
from fathom.sounding import Manifest, Rank, Writer, conform, open_store
from tests.support.paths import PROGRAMS
from tests.support.running import run_fathom

# In parts, so that scanners of repositories see none.
SECRETS = [
    prefix + rest
    for prefix, rest in (
        ("hf_", "AbCdEfGhIjKlMnOpQrSt"),
        ("sk-", "proj-AbCdEf0123456789AbCdEf"),
        ("ghp_", "AbCdEf0123456789AbCdEf0123456789"),
        ("github_pat_", "11ABCDEFG0123456789abcdef"),
        ("glpat-", "AbCdEf0123456789AbCd"),
        ("xoxb-", "123456789012-AbCdEf0123"),
        ("nvapi-", "AbCdEf0123456789AbCdEf"),
        ("AKIA", "ABCDEFGHIJKLMNOP"),
        ("ASIA", "ABCDEFGHIJKLMNOP"),
        ("AIza", "SyA-bCdEf0123456789AbCdEf012345678"),
        ("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.AbCdEf0123"),
        ("sk_live_", "AbCdEf0123456789AbCdEf"),
        ("ya29.", "a0AbCdEf0123456789"),
        ("npm_", "AbCdEf0123456789AbCdEf0123456789abcd"),
        ("pypi-", "AgEIcHlwaS5vcmcCJDAbCdEf0123456789"),
        ("dop_v1_", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
        ("SG.", "AbCdEf0123456789AbCd.AbCdEf0123456789AbCdEf0123456789AbCdEf012"),
        ("r8_", "AbCdEf0123456789AbCdEf0123456789abcdef0"),
        ("gsk_", "AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789"),
        ("lin_api_", "AbCdEf0123456789AbCdEf0123456789abcdef01"),
    )
]
OWN = "corp:0123456789"


def texts(file: Path) -> str:
    """Everything in the file, unpacked and uncompressed."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            return " ".join(str(archive.read(name)) for name in archive.namelist())
    if file.suffix == ".parquet":
        return str(pl.read_parquet(file).to_dicts())
    data = file.read_bytes()
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode(errors="replace")


@pytest.mark.programs
def test_nothing_secret_is_kept(tmp_path):
    (tmp_path / "fathom.toml").write_text('[redact]\npatterns = ["corp:[0-9]{10}"]\n')
    secrets = [*SECRETS, OWN]
    env = {"NCCL_NOTE": " ".join(secrets), "TORCH_URL": f"https://me:{SECRETS[0]}@host"}
    program = ["python", PROGRAMS / "planted_secrets.py", *secrets]
    done = run_fathom("run", "--raw", "-o", "r.fathom", "--", *program, cwd=tmp_path, **env)
    assert done.returncode == 1 and "cannot reach" in done.stderr
    for words in (
        ["import", "r.fathom", "-o", "s.fathom"],
        ["pack", "s.fathom"],
        ["report", "s.fathom", "--all", "--html", "s.html"],
        ["report", "s.fathom", "--svg", "s.svg"],
    ):
        assert run_fathom(*words, cwd=tmp_path).returncode == 0, words
    (tmp_path / "printed.txt").write_text(run_fathom("report", "s.fathom", "--all", cwd=tmp_path).stdout)
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "fathom.toml"]
    assert any(file.name == "manifest.json" for file in kept) and any(".gz" in file.name for file in kept)
    for file in kept:
        leaked = [secret for secret in secrets if secret in texts(file)]
        assert not leaked, (file, leaked)
    names = open_store(tmp_path / "s.fathom").table("ops").collect()["name"]
    assert names.str.contains(f"GET https://{HIDDEN}@host/v1?api_key={HIDDEN}", literal=True).any()
    private(tmp_path / "r.fathom")
    private(tmp_path / "s.fathom")
    assert stat.S_IMODE((tmp_path / "s.fathom.zip").stat().st_mode) == 0o600


def private(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:5])
@pytest.mark.parametrize("around", ["{}", "token {} was refused", "https://u:{}@h/p", "h/p?x=1&sig={}&y=2"])
def test_kinds(secret, around):
    for redact in (redact_name, redact_text):
        changed = redact(around.format(secret))
        assert secret not in changed and HIDDEN in changed
        assert redact(changed) == changed


@pytest.mark.parametrize(
    "name",
    [
        "void cub::detail::radix_sort::by_key::Kernel<int>(int*)",
        "aten::_scaled_dot_product_flash_attention",
        "mha_fwd_splitkv_key::impl",
        "hf_trainer.py(12): training_step",
        "data/task-parallel-mask-1234567890.bin",
        "https://host/path?page=2",
        "model.layers.0.self_attn.key: Linear",
        "void gemm<basic_tile, 128>(float*)",
    ],
)
def test_names_stay(name):
    assert redact_name(name) == name


def test_tables_manifest_and_machine_are_redacted(tmp_path):
    secret = SECRETS[0]
    writer = Writer(tmp_path / "s.fathom")
    kernels = pl.DataFrame({"name": [f"gemm {secret}", "gemm"], "start_ns": [1, 2], "end_ns": [2, 3]})
    about = {"device": 0, "stream": 7, "kind": "compute"}
    rows = kernels.with_columns(**{name: pl.lit(value) for name, value in about.items()})
    writer.write(0, "kernels", conform("kernels", rows))
    facts = {"loaders": [{"loader": 0, "dataset": secret}]}
    abstained = [{"what": "x", "why": f"password={secret}"}]
    manifest = Manifest(ranks=[Rank(0, facts=facts, devices={0: "GPU"})], abstained=abstained)
    store = writer.finish(manifest, {"host": {"hostname": secret}})
    assert store.table("kernels").collect()["name"].to_list() == [f"gemm {HIDDEN}", "gemm"]
    assert store.manifest.ranks[0].devices == {0: "GPU"}
    assert not any(secret in texts(file) for file in store.path.rglob("*") if file.is_file())
    private(store.path)


def test_details_of_an_error_are_redacted(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        raise LookupError(f"no {SECRETS[0]}")
    except LookupError as error:
        explain(error)
    (file,) = tmp_path.iterdir()
    assert SECRETS[0] not in file.read_text() and HIDDEN in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[redact", "not valid TOML"),
        ("[redact]\npatterns = 3", "not a list"),
        ('[redact]\npatterns = ["("]', "not valid"),
        ('[redact]\npatterns = ["a*"]', "matches empty text"),
    ],
)
def test_invalid_patterns(tmp_path, monkeypatch, text, says):
    (tmp_path / "fathom.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    own_patterns.cache_clear()
    try:
        with pytest.raises(BadInputError, match=says):
            own_patterns()
    finally:
        own_patterns.cache_clear()


def test_values_that_are_no_text_stay():
    assert redact_all({"a": [1, None, 2.5, True], 3: "x"}) == {"a": [1, None, 2.5, True], 3: "x"}
