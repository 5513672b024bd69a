"""Which paths the server reads."""

from __future__ import annotations

import pytest

from fathom.agent import Roots
from fathom.errors import BadInputError
from tests.support.small_sounding import make


@pytest.fixture
def project(tmp_path):
    inside, outside = tmp_path / "project", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    make(inside / "a.fathom")
    make(outside / "b.fathom")
    return inside


def test_relative_and_absolute_paths_inside_are_resolved(project):
    roots = Roots([project])
    assert roots.sounding("a.fathom") == roots.sounding(str(project / "a.fathom")) == project / "a.fathom"
    assert roots.shown(project / "a.fathom") == "a.fathom"
    assert roots.inside("x/../a.fathom") == project / "a.fathom"


@pytest.mark.parametrize(
    "path", ["../outside/b.fathom", "/etc/passwd", "a.fathom/../../outside/b.fathom", "a\0b", "~", ".."]
)
def test_a_path_outside_is_refused(project, path):
    with pytest.raises(BadInputError):
        Roots([project]).sounding(path)


def test_a_folder_whose_name_begins_like_a_root_is_outside(project):
    make(project.with_name("project2") / "c.fathom")
    with pytest.raises(BadInputError, match="outside"):
        Roots([project]).sounding("../project2/c.fathom")


def test_links_that_leave_the_roots_are_refused(project):
    (project / "link.fathom").symlink_to(project.parent / "outside" / "b.fathom")
    (project / "loop.fathom").symlink_to(project / "loop.fathom")
    for name in ("link.fathom", "loop.fathom"):
        with pytest.raises(BadInputError):
            Roots([project]).sounding(name)
    table = project / "a.fathom" / "rank-0" / "steps.parquet"
    table.replace(project.parent / "outside" / "steps.parquet")
    table.symlink_to(project.parent / "outside" / "steps.parquet")
    with pytest.raises(BadInputError, match="link to a place outside"):
        Roots([project]).sounding("a.fathom")


def test_links_between_roots_are_followed(project):
    (project / "link.fathom").symlink_to(project.parent / "outside" / "b.fathom")
    roots = Roots([project, project.parent / "outside"])
    assert roots.sounding("link.fathom").name == "b.fathom"


def test_a_missing_sounding_names_those_that_exist(project):
    with pytest.raises(BadInputError, match=r"no sounding 'c.fathom'; there are a\.fathom"):
        Roots([project]).sounding("c.fathom")


def test_soundings_are_found_but_not_looked_into(project):
    make(project / "runs" / "deep" / "d.fathom")
    make(project / ".cache" / "hidden.fathom")
    roots = Roots([project])
    assert [roots.shown(path) for path in roots.soundings()] == ["a.fathom", "runs/deep/d.fathom"]


def test_a_root_must_be_a_folder(project):
    with pytest.raises(BadInputError, match="not a folder"):
        Roots([project / "nothing"])
