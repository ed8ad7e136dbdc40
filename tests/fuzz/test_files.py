"""Readers of files that were damaged in any way: what they hold, or one line that says what is wrong."""

import contextlib
import functools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dr_q
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.kit import DrQError
from dr_q.learner.saving import load
from dr_q.report.results import read_results
from dr_q.run_folder import (
    Checkpoints,
    last_evaluations,
    last_metrics,
    read_arrays,
    read_run,
    read_run_json,
    run_timing,
)
from dr_q.training.api import resume_settings
from dr_q.training.plan import Memory, make_plan
from tests import golden_data
from tests.fuzz.damage import damaged, damaged_json

RUN = Path(__file__).parents[1] / "data" / "runs-675da62" / "states"
AT_MOST = 5.0
METRICS = "seed,agent_steps,critic_loss,ms_act,ms_update,env_restarts\n" + "".join(
    f"{seed},{step},0.5,1.25,3,0\n" for step in (1000, 2000) for seed in (0, 1)
)
RESULTS = "task,preset,seed,agent_steps,return\n" + "".join(
    f"gym/Hopper-v4,dr.q,{seed},{step},{seed + step / 7}\n" for step in (5000, 10000) for seed in range(3)
)
bounded = functools.partial(
    settings, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@functools.cache
def spec() -> Any:
    """What the run's checkpoint is read into."""
    chosen = resume_settings(RUN, None, None)
    env = make_env(chosen.task)
    env.close()
    return make_plan(chosen, env.spec, Memory("any", 2**60, 2**60)).spec


def resumed(run: Path) -> None:
    """What a resume reads."""
    resume_settings(run, None, None)
    info = read_run_json(run, "status", "agent_steps", "seeds", "versions")
    load(Checkpoints(run, info["seeds"]), 160, spec())


def acting(run: Path) -> None:
    dr_q.load(run).act(np.zeros(11, np.float32))


def listed(run: Path) -> None:
    assert main(["doctor", str(run)]) in (0, 1)


READERS: dict[str, list[Callable[[Path], Any]]] = {
    "run.json": [read_run, resumed, lambda run: read_results([run]), listed, acting],
    "evals.csv": [read_run, last_evaluations, lambda run: read_results([run]), listed],
    "metrics.csv": [run_timing, last_metrics],
    "policy/policy.json": [acting],
    "policy/seed0.safetensors": [acting, lambda run: read_arrays(run / "policy" / "seed0.safetensors")],
    "checkpoints/160/checkpoint.json": [resumed, listed],
    "checkpoints/160/agents.safetensors": [resumed, listed],
    "checkpoints/160/replay.safetensors": [resumed, listed],
    "checkpoints/160/episodes.safetensors": [resumed, listed],
    "checkpoints/replay/seed0/00000000-115-128.safetensors": [resumed, listed],
}
EXAMPLES = {"json": 60, "csv": 60, "safetensors": 25}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Iterator[Path]:
    copy = tmp_path_factory.mktemp("fuzz") / "run"
    shutil.copytree(RUN, copy)
    (copy / "metrics.csv").write_text(METRICS)
    resumed(copy)  # compiled, imported
    acting(copy)
    listed(copy)
    yield copy
    shutil.rmtree(copy)


def files_of(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def check_reader(read: Callable[[Path], Any], path: Path) -> None:
    """It gives something, or says what is wrong in one line, soon."""
    start, said = time.monotonic(), "."
    try:
        read(path)
    except DrQError as error:
        said = str(error)
    except OSError as error:  # a path in the file leads nowhere
        said = str(error.filename or "")
    assert said
    assert "\n" not in said
    assert time.monotonic() - start < AT_MOST


@pytest.mark.parametrize("name", READERS)
def test_files_of_a_run(name, run):
    file = run / name
    whole = file.read_bytes()
    before = files_of(run)
    kind = name.rpartition(".")[2]
    changes = damaged(whole) if kind != "json" else st.one_of(damaged_json(whole.decode()), damaged(whole))

    @bounded(max_examples=EXAMPLES[kind])
    @given(data=changes)
    def check(data: bytes) -> None:
        file.write_bytes(data)
        for read in READERS[name]:
            check_reader(read, run)
        assert files_of(run) == {**before, name: len(data)}, "something was left behind"

    try:
        check()
    finally:
        file.write_bytes(whole)


@bounded(max_examples=60)
@given(data=damaged(RESULTS.encode()))
def test_tables_from_elsewhere(data, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp("fuzz")
    file, out = folder / "results.csv", folder / "out.csv"
    file.write_bytes(data)
    check_reader(lambda path: read_results([path]), file)
    code = main(["results", str(file), "--out", str(out)])
    said = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert code == 0 or said.count("\n") == 1
    assert out.exists() == (code == 0)
    shutil.rmtree(folder)


def test_recorded_data_of_the_golden_tests(tmp_path):
    """Read by the tests themselves; damage must not look like a difference between agents."""
    whole = (golden_data.FOLDER / "two_hot.npz").read_bytes()
    file = tmp_path / "two_hot.npz"

    @bounded(max_examples=60)
    @given(data=damaged(whole))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(golden_data.DamagedRecordError):
            golden_data.load(file)

    check()
