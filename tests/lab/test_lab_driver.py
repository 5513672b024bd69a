"""The lab's calls of the driver: what a status says, where the device runtime lies, how launches are made."""

# ruff: noqa: N802  # the fakes have the names of what they stand for

from __future__ import annotations

import ctypes
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fathom.errors import BadInputError  # noqa: E402
from fathom.lab import driver  # noqa: E402


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2


def test_a_call_gives_what_it_returned_or_raises_its_reason() -> None:
    assert driver.done((Status.CUDA_SUCCESS, 7)) == 7
    assert driver.done((Status.CUDA_SUCCESS, 7, 8)) == (7, 8)
    assert driver.done((Status.CUDA_SUCCESS,)) == ()
    with pytest.raises(driver.DriverError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        driver.done((Status.CUDA_ERROR_OUT_OF_MEMORY, None))


def test_the_device_runtime_is_found_anywhere_below_or_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nvidia-cuda-runtime"):
        driver.device_runtime_library([tmp_path / "missing", tmp_path])
    library = tmp_path / "cu13" / "lib" / "libcudadevrt.a"
    library.parent.mkdir(parents=True)
    library.touch()
    assert driver.device_runtime_library([tmp_path / "missing", tmp_path]) == str(library)


class Linker:
    """A driver that links, and notes what it was given."""

    CUjitInputType = SimpleNamespace(CU_JIT_INPUT_PTX="ptx", CU_JIT_INPUT_LIBRARY="library")

    def __init__(self, status: Status = Status.CUDA_SUCCESS) -> None:
        self.status, self.given, self.ended = status, list[Any](), False
        self.image = ctypes.create_string_buffer(b"cubin", 5)

    def cuLinkCreate(self, *_: Any) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, "state"

    def cuLinkAddData(self, state: str, kind: str, data: bytes, size: int, *_: Any) -> tuple[Any, ...]:
        self.given.append((kind, data[:size]))
        return (Status.CUDA_SUCCESS,)

    def cuLinkAddFile(self, state: str, kind: str, path: bytes, *_: Any) -> tuple[Any, ...]:
        self.given.append((kind, path))
        return (self.status,)

    def cuLinkComplete(self, state: str) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, ctypes.addressof(self.image), 5

    def cuLinkDestroy(self, state: str) -> tuple[Any, ...]:
        self.ended = True
        return (Status.CUDA_SUCCESS,)


def test_linking_takes_both_and_copies_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Linker()
    monkeypatch.setattr(driver, "driver", lambda: fake)
    assert driver.link_device_runtime(b"text", "/lib.a") == b"cubin"
    assert fake.given == [("ptx", b"text"), ("library", b"/lib.a")] and fake.ended


def test_a_failed_link_is_told_and_its_state_released(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Linker(Status.CUDA_ERROR_OUT_OF_MEMORY)
    monkeypatch.setattr(driver, "driver", lambda: fake)
    with pytest.raises(driver.DriverError):
        driver.link_device_runtime(b"text", "/lib.a")
    assert fake.ended


class Core:
    """cuda.core that knows one word for launching all blocks cooperatively, and notes the launches."""

    def __init__(self, word: str) -> None:
        self.word, self.launched = word, list[tuple[Any, ...]]()

    def LaunchConfig(self, *, grid: Any, block: Any, **how: bool) -> dict[str, Any]:
        if how.keys() - {self.word}:
            raise TypeError(f"unexpected keyword {next(iter(how))}")
        return {"grid": grid, "block": block, "cooperative": how.get(self.word, False)}

    def launch(self, stream: Any, config: Any, kernel: str, *arguments: Any) -> None:
        self.launched.append((config, kernel, *arguments))


@pytest.mark.parametrize("word", ["is_cooperative", "cooperative_launch"])
@pytest.mark.parametrize("cooperative", [False, True])
def test_a_launch_asks_for_what_it_was_told(
    word: str, cooperative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(word)
    monkeypatch.setattr(driver, "core_of_cuda", lambda: core)
    monkeypatch.setattr(driver, "_kernel", lambda path, name, linked, shared: f"{path.name}:{name}:{linked}")
    tensor, large = torch.zeros(1), ctypes.c_uint64(2**40)
    source = driver.Source("some/where.py", device_runtime=True)
    source.launch("it", (2, 3), 32, tensor, 5, 0.5, large, cooperative=cooperative)
    config, kernel, *given = core.launched[0]
    assert config == {"grid": (2, 3), "block": 32, "cooperative": cooperative}
    assert kernel == "where.cu:it:True"
    assert given[0] == tensor.data_ptr() and given[3] is large
    assert (given[1].value, given[2].value) == (5, 0.5)
    assert [type(item) for item in given[1:3]] == [ctypes.c_int32, ctypes.c_float]


class Kernel:
    """A kernel that cuda.core compiled."""

    _handle = "CUkernel"

    @classmethod
    def of(cls, path: Path, runtime: bool) -> Any:
        return SimpleNamespace(get_kernel=lambda name: cls())


class Attributes:
    """A driver that sets attributes of kernels, up to the 227 KB that Hopper has."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")

    def __init__(self) -> None:
        self.set = list[tuple[Any, ...]]()

    def cuKernelSetAttribute(self, what: str, value: int, kernel: str, number: int) -> tuple[Any, ...]:
        self.set.append((what, value, kernel, number))
        return (Status.CUDA_SUCCESS if value <= 227 << 10 else Status.CUDA_ERROR_OUT_OF_MEMORY,)


def test_dynamic_shared_memory_is_allowed_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    core, fake = Core("shmem_size"), Attributes()
    monkeypatch.setattr(driver, "core_of_cuda", lambda: core)
    monkeypatch.setattr(driver, "_compiled", Kernel.of)
    monkeypatch.setattr(driver, "driver", lambda: fake)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    source = driver.Source("some/other.py")
    source.launch("it", 1, 32, shared=200 << 10)
    assert fake.set == [("dynamic", 200 << 10, "CUkernel", 3)]
    assert core.launched[0][0]["cooperative"] == 200 << 10
    source.launch("it", 1, 32)
    assert len(fake.set) == 1 and core.launched[1][0]["cooperative"] is False
    with pytest.raises(driver.DriverError):
        source.launch("it", 1, 32, shared=1 << 20)
