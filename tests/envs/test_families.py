"""Families of environments: those of this package, those of other packages, and what importing them does not import."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dr_q.envs import (
    DEFAULT_AGENT_STEPS,
    ProcessPool,
    Source,
    canonical,
    default_steps,
    known_tasks,
    make_env,
    suite_tasks,
    suites,
)
from dr_q.envs.families import families
from dr_q.kit import TaskError
from dr_q.paper import paper_tasks
from dr_q.spaces import SINGLE

FAMILY_FILE = """
from dr_q.envs import Family, UnknownIdError
from dr_q.paper import TaskInfo


def make(name, render):
    from dr_q.envs.gymnasium_adapter import GymEnv
    from tests.envs.toys import Walk

    if name not in ("short_walk", "long_walk", "other"):
        raise UnknownIdError(name, ["short_walk", "long_walk", "other"])
    return GymEnv(Walk, name)


FAMILY = Family(
    prefix="toys",
    title="Toys",
    make=make,
    tasks=(
        TaskInfo("toys/short_walk", "toys-short", 1_000, 1, 40, 0.0, 10.0),
        TaskInfo("toys/long_walk", "toys-long", 2_000, 1, 40, None, None),
    ),
    agent_steps=3_000,
    probe="toys/short_walk",
)
"""


def install(folder: Path, name: str, code: str, value: str | None = None) -> None:
    """A package of one file, with an entry point, as pip would leave it."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dr_q.families]\n{name} = {value or name}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    families.cache_clear()
    yield tmp_path
    families.cache_clear()
    for name in set(sys.modules) - before:
        if not name.startswith(("dr_q", "tests")) and (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_every_file_of_the_folder_is_a_family_in_the_papers_order():
    assert list(families()) == ["gym", "dmc", "dmc-visual", "hbench", "atari"]
    assert [family.prefix for family in families().values()] == list(families())
    others = {task.name for task in suite_tasks("atari")}
    assert {t.name for family in families().values() for t in family.tasks} == set(paper_tasks()) | others
    for family in families().values():
        assert not family.probe or family.probe in known_tasks()
        assert family.install


def test_unknown_suites_get_a_hint():
    with pytest.raises(TaskError, match="unknown suite 'dmc-hart'; did you mean 'dmc-hard'\\? suites: gym, dmc-easy"):
        suite_tasks("dmc-hart")
    with pytest.raises(TaskError, match="unknown suite 'x'; suites: gym"):
        suite_tasks("x")


def test_budgets():
    assert default_steps("gym/ant-v4") == paper_tasks()["gym/Ant-v4"].agent_steps == 1_000_000
    for other in ("gym/Pendulum-v1", "dmc/point_mass-easy", "module:Id", "nothing", lambda: None):
        assert default_steps(other) == DEFAULT_AGENT_STEPS == 500_000


@pytest.mark.parametrize("value", ["toy_robots", "toy_robots:FAMILY"])
def test_a_family_of_another_package(site, value, capsys):
    install(site, "toy_robots", FAMILY_FILE, value)
    assert list(families()) == ["gym", "dmc", "dmc-visual", "hbench", "atari", "toys"]
    assert families()["toys"].title == "Toys"
    assert len(known_tasks()) == len(suite_tasks("all")) == 73 + 57 + 2
    assert suite_tasks("paper") == list(paper_tasks().values())
    assert suites()[-5:] == ("toys-short", "toys-long", "toys", "paper", "all")
    assert [task.name for task in suite_tasks("toys")] == ["toys/short_walk", "toys/long_walk"]
    assert [task.name for task in suite_tasks("toys-long")] == ["toys/long_walk"]
    assert known_tasks()["toys/short_walk"].normalise(5.0) == 0.5
    assert canonical("Toys/short-walk") == "toys/short_walk"
    assert (default_steps("toys/short-walk"), default_steps("toys/other")) == (1_000, 3_000)
    assert make_env("toys/other").reset(0)[SINGLE].shape == (1,)
    with pytest.raises(TaskError, match=r"unknown task 'toys/shirt_walk'; did you mean 'toys/short_walk'\? List: dr-q"):
        make_env("toys/shirt_walk")
    assert capsys.readouterr().err == ""


def test_workers_find_families_of_other_packages(site, capsys):
    install(site, "toy_robots", FAMILY_FILE)
    install(site, "broken_robots", "import no_such_simulator")
    pool = ProcessPool(Source("toys/long_walk"), [0], 1)
    try:
        pool.begin()
        pool.send(np.zeros((1, 1), np.float32))
        assert pool.receive().obs[SINGLE].shape == (1, 1)
    finally:
        pool.close()
    assert "broken_robots" not in capsys.readouterr().err  # this process reports it, when it needs families


def test_the_command_lists_families_of_other_packages(site, capsys):
    from dr_q.cli import main

    install(site, "toy_robots", FAMILY_FILE)
    assert main(["tasks", "toys-short"]) == 0
    assert "toys/short_walk" in capsys.readouterr().out
    assert main(["tasks", "all", "--json"]) == 0
    assert [task["name"] for task in json.loads(capsys.readouterr().out)][-2:] == ["toys/short_walk", "toys/long_walk"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_simulator", "ModuleNotFoundError: No module named 'no_such_simulator'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("FAMILY = 5", "it is of type int, expected a dr_q.envs.Family, or a file with one named FAMILY"),
        (FAMILY_FILE.replace('"toys"', '"dmc"'), "the name 'dmc' is taken"),
        (FAMILY_FILE.replace('"toys-short"', '"gym"'), "the name 'gym' is taken"),
        (FAMILY_FILE.replace('"toys"', '"To ys"'), "its prefix is 'To ys'; a prefix has lower-case letters"),
        (FAMILY_FILE.replace('"toys"', '"toy"'), "its task 'toys/short_walk' does not begin with 'toy/'"),
    ],
)
def test_a_family_that_cannot_be_used_is_left_out_and_reported_once(site, code, message, capsys):
    install(site, "broken_robots", code)
    install(site, "good_robots", FAMILY_FILE)
    assert list(families()) == ["gym", "dmc", "dmc-visual", "hbench", "atari", "toys"]
    assert make_env("gym/Pendulum-v1").spec.action.dim == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dr-q: the family 'broken_robots' (broken_robots) is left out: {message}")


def python(code: str, **environment: str) -> str:
    clean = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")}
    run = [sys.executable, "-c", code]
    return subprocess.run(run, check=True, capture_output=True, text=True, env={**clean, **environment}).stdout.strip()


def test_names_suites_and_budgets_import_no_simulator():
    code = (
        "import sys, dr_q.envs.families as f\n"
        "[f.default_steps(name) for name in f.known_tasks()], f.suite_tasks('all'), f.canonical('dmc/dog-run')\n"
        "[(family.available, family.source_folder()) for family in f.families().values()]\n"
        "print({'mujoco', 'dm_control', 'gymnasium', 'jax', 'torch', 'humanoid_bench'} & set(sys.modules))"
    )
    assert python(code) == "set()"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there a backend is chosen")
@pytest.mark.parametrize(
    "module", ["dr_q.envs.families.dmc", "dr_q.envs.gymnasium_adapter", "dr_q.envs.processes.worker"]
)
def test_the_rendering_backend_is_chosen_before_mujoco_is_imported(module):
    """By any way into the package, because MuJoCo reads it once."""
    code = (
        "import sys, os, importlib.abc\n"
        "class Watch(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        assert name != 'mujoco' or os.environ.get('MUJOCO_GL'), 'too late'\n"
        "sys.meta_path.insert(0, Watch())\n"
        f"import {module}\n"
        "from dr_q.envs import make_env\n"
        "make_env('gym/Hopper-v4').reset(0)\n"
        "make_env('dmc/walker-run').reset(0)\n"
        "print('mujoco' in sys.modules)"
    )
    assert python(code) == "True"
