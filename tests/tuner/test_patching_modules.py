"""Lines about a module run before the module's first call, on every way through the program."""

from __future__ import annotations

import itertools
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.tuner.patching.source import RefusedError
from fathom.tuner.patching.writing import written
from tests.tuner.traced import Traced, apply

COMPILE = {"compile": {"mode": "max-autotune"}}

SHAPES = {
    "at the first level": """
        model = Module()
        for x in range(2):
            model(x)
        """,
    "moved after it was made": """
        def main():
            model = Module()
            model = model.to("cpu")
            for x in range(2):
                y = 1 + len([model(x)])
        main()
        """,
    "passed to a function, by position and by name": """
        def step(x, model, *, other):
            other(model(x))
        def epoch(net, critic):
            for x in range(2):
                step(x, net, other=critic)
        def main():
            net, critic = Module(), Module()
            epoch(critic=critic, net=net)
        main()
        """,
    "an attribute of self": """
        class Trainer:
            def __init__(self, model):
                self.model = model
            def fit(self):
                for x in range(2):
                    self.model(x)
        if True:
            Trainer(Module()).fit()
        """,
    "an attribute that a subclass assigns": """
        class Base:
            def fit(self):
                self.model(1)
        class Middle(Base):
            pass
        class Trainer(Middle):
            def __init__(self):
                self.model = Module()
        Trainer().fit()
        """,
    "an attribute that a base assigns": """
        class Base:
            def __init__(self):
                self.model = Module()
        class Trainer(Base):
            def fit(self):
                self.model(1)
        Trainer().fit()
        """,
    "made in the method that calls it": """
        class Trainer:
            def fit(self):
                self.model = Module()
                self.model = self.model.to("cpu")
                self.model(1)
        Trainer().fit()
        """,
    "the object itself": """
        class Net(Module):
            def loss(self, x):
                return self(x)
        net = Net()
        net.loss(1)
        """,
    "a global variable": """
        model = Module()
        def step(x):
            return model(x)
        step(1)
        """,
    "a variable of the function around": """
        def main():
            model = Module()
            def step(x):
                return model(x)
            step(1)
        main()
        """,
    "wrapped under a condition": """
        def wrap(model):
            return Module()
        model = Module()
        if len("a") == 1:
            model = wrap(model)
        elif model:
            pass
        model(1)
        """,
    "in a comprehension": """
        model = Module()
        outputs = [model(x) for x in range(3)]
        """,
    "two called in a line": """
        a: Module = Module(); 
        b = Module()
        b(a(1))
        """,
    "passed to methods of every kind": """
        class Steps:
            @classmethod
            def of_class(cls, x, model):
                return cls.of_none(x, model)
            @staticmethod
            def of_none(x, model):
                return Steps.of_object(Steps(), x, model)
            def of_object(self, x, /, model, *rest, other=None):
                return model(x)
        net = Module()
        Steps.of_class(1, net)
        """,
    "passed to a constructor": """
        class Base:
            def __init__(self, model, *, other=None):
                self.model = model
                self.model(1)
        class Trainer(Base):
            pass
        net = Module()
        Trainer(net, other=1)
        """,
    "with tabs and a comment": "def f():\n\tif 1:\n\t\tm = Module()  # é\n\t\tm(1)\nf()",
    "in the last line": "m = Module()\nm(1)",
    "either": """
        if events is None:
            model = Module()
        else:
            model = Module()
        model(1)
        """,
    "tried": """
        def main():
            try:
                model = Module()
            except ValueError:
                return
            with open("/dev/null") as file:
                model(1)
        main()
        """,
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("with_git", [True, False])
def test_each_called_module_is_compiled_first(text: str, with_git: bool, tmp_path: Path) -> None:
    before = Traced(tmp_path).run(textwrap.dedent(text).encode())
    program = before.program()
    after = Traced(tmp_path).run(apply(program, written(program, COMPILE), with_git))
    assert len(after.modules) == len(before.modules) > 0
    assert all(module.was_compiled == {"mode": "max-autotune"} for module in after.modules)


REFUSED = {
    "under a condition": """
        if events == []:
            model = Module()
        if events == []:
            model(1)
        """,
    "assigned again": """
        model = Module()
        for x in range(2):
            model(x)
            model = Module()
        """,
    " in another way than by assignment": """
        for model in (Module(), Module()):
            model(1)
        """,
    "no simple name": """
        models = [Module()]
        models[0](1)
        """,
    "through * or **": """
        def step(model):
            model(1)
        arguments = [Module()]
        step(*arguments)
        """,
    "called under another name": """
        from functools import partial
        def step(x, model):
            model(x)
        net, other = Module(), Module()
        partial(step, other)(net)
        """,
    " called under another name": """
        def step(model):
            model(1)
        def run(then, model):
            then(model)
        net = Module()
        run(step, net)
        """,
    " its default value": """
        def step(x, *rest, model=Module()):
            model(x)
        step(1, 2, 3)
        """,
    "its default value": """
        def step(model=Module()):
            model(1)
        step()
        """,
    "exactly one method": """
        class Trainer:
            def __init__(self):
                self.model = None
            def setup(self):
                self.model = Module()
            def fit(self):
                self.model(1)
        trainer = Trainer()
        trainer.setup()
        trainer.fit()
        """,
    " exactly one method": """
        class Base:
            def fit(self):
                self.model(1)
        class First(Base):
            def __init__(self):
                self.model = Module()
        class Second(Base):
            def __init__(self):
                self.model = Module()
        First().fit()
        """,
    "global variable that functions": """
        model = None
        def setup():
            global model
            model = Module()
        def step():
            model(1)
        setup()
        step()
        """,
    "one that has returned": """
        def make():
            model = Module()
            return lambda: None, step_of(model)
        def step_of(net):
            def step():
                net(1)
            return step
        _, step = make()
        step()
        """,
    "several statements in a line": """
        model = Module(); x = 1
        model(x)
        """,
}


@pytest.mark.parametrize(("reason", "text"), REFUSED.items())
def test_uncertain_places_are_refused(reason: str, text: str, tmp_path: Path) -> None:
    program = Traced(tmp_path).run(textwrap.dedent(text).encode()).program()
    with pytest.raises(RefusedError) as refused:
        written(program, COMPILE)
    assert reason.strip() in str(refused.value)


def test_a_call_of_a_library_is_refused(tmp_path: Path) -> None:
    program = Traced(tmp_path / "a").run(b"m = Module()\nm(1)\n").program()
    program._folders = (tmp_path / "b", tmp_path / "b")
    with pytest.raises(RefusedError, match=r"a/train\.py is outside of this folder"):
        written(program, COMPILE)


MAKING = ("model = Module()", "model = model.to(1)", "model, x = Module(), 2")
LINES = (*MAKING, "model(1)", "model(2)", "model(3)", "pass", "return")
OPENINGS = (
    ("if {}:",),
    ("if {}:", "else:"),
    ("for _ in range({} + 1):",),
    ("with context():",),
    ("while once({}):",),
)
TRY = (("try:", "except ValueError:"), ("try:", "finally:"), ("try:", "except NameError:"))
FLAGS = 3


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """Lines of a function that makes and calls modules under conditions."""
    lines = [draw(st.sampled_from((MAKING[0], "pass")))]
    for _ in range(draw(st.integers(1, 4))):
        if depth == 3 or draw(st.integers(0, 2)):
            lines.append(draw(st.sampled_from(LINES)))
            continue
        flag = f"flags[{draw(st.integers(0, FLAGS - 1))}]"
        for opening in draw(st.sampled_from(OPENINGS + TRY)):
            lines.append(opening.format(flag))
            lines += [f"    {line}" for line in draw(bodies(depth + 1))]
    return lines if depth else [*lines, "model(4)"]


def names(flags: tuple[int, ...]) -> dict[str, Any]:
    import contextlib

    seen: list[int] = []

    def once(flag: int) -> bool:
        seen.append(flag)
        return bool(flag) and len(seen) < 5

    return {"flags": flags, "context": contextlib.nullcontext, "once": once}


def runs(folder: Path, data: bytes, flags: tuple[int, ...]) -> Traced | str:
    traced = Traced(folder)
    try:
        return traced.run(data, **names(flags))
    except NameError as error:  # also of a variable without a value
        return type(error).__name__


@settings(max_examples=120, deadline=None)
@given(bodies(), st.lists(st.integers(0, 1), min_size=FLAGS, max_size=FLAGS))
def test_random_programs(body: list[str], flags: list[int]) -> None:
    data = "\n".join(["def main():", *(f"    {line}" for line in body), "main()", ""]).encode()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        before = runs(folder, data, tuple(flags))
        if isinstance(before, str) or not before.modules:
            return
        program = before.program()
        try:
            edits = written(program, COMPILE)
        except RefusedError:
            return
        changed = apply(program, edits)
        after = runs(folder, changed, tuple(flags))
        assert isinstance(after, Traced) and all(module.was_compiled for module in after.modules), changed
        for other in itertools.product(
            (0, 1), repeat=FLAGS
        ):  # other ways through the program go on as before
            plain, patched = (runs(folder, text, other) for text in (data, changed))
            assert isinstance(plain, str) or isinstance(patched, Traced), (other, changed)
