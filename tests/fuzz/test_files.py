"""Readers of files that were damaged in any way: what they hold, or one line that says what is wrong."""

import contextlib
import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dr_q
from dr_q.agent.named_arrays import named_arrays
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.learner.saving import Saved, load, to_checkpoint
from dr_q.report.results import read_results
from dr_q.run_folder import (
    Checkpoints,
    checkpoints,
    last_evaluations,
    last_metrics,
    policy_record,
    read_arrays,
    read_run,
    read_run_json,
    run_timing,
    write_policies,
)
from dr_q.spaces import spaces_from_json
from dr_q.training.api import resume_settings
from dr_q.training.best import BestPolicies
from dr_q.training.callbacks import Patience, StopAtReturn
from dr_q.training.episodes import EpisodeLog
from dr_q.training.plan import Memory, make_plan
from tests import golden_data
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.readers import bounded, check_reader, files_of

RUN = Path(__file__).parents[1] / "data" / "runs-675da62" / "states"
METRICS = "seed,agent_steps,critic_loss,ms_act,ms_update,env_restarts\n" + "".join(
    f"{seed},{step},0.5,1.25,3,0\n" for step in (1000, 2000) for seed in (0, 1)
)
RESULTS = "task,preset,seed,agent_steps,return\n" + "".join(
    f"gym/Hopper-v4,dr.q,{seed},{step},{seed + step / 7}\n" for step in (5000, 10000) for seed in range(3)
)


@functools.cache
def spec() -> Any:
    """What the run's checkpoint is read into."""
    chosen = resume_settings(RUN, None, None)
    env = make_env(chosen.task)
    env.close()
    return make_plan(chosen, env.spec, Memory("any", 2**60, 2**60)).spec


def resumed(run: Path) -> Saved:
    """What a resume reads."""
    resume_settings(run, None, None)
    info = read_run_json(run, "status", "agent_steps", "seeds", "versions")
    return load(Checkpoints(run, info["seeds"]), 160, spec())


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


def check_file(run: Path, name: str, readers: list[Callable[[Path], Any]], changes: Any, examples: int) -> None:
    """Change a file of a run in many ways; each reader of it gives something or one line, and nothing else changes."""
    file = run / name
    whole, before = file.read_bytes(), files_of(run)

    @bounded(max_examples=examples)
    @given(data=changes)
    def check(data: bytes) -> None:
        file.write_bytes(data)
        for read in readers:
            check_reader(read, run)
        assert files_of(run) == {**before, name: len(data)}, "something was left behind"

    try:
        check()
    finally:
        file.write_bytes(whole)


def changes_of(file: Path) -> Any:
    whole = file.read_bytes()
    return damaged(whole) if file.suffix != ".json" else st.one_of(damaged_json(whole.decode()), damaged(whole))


@pytest.mark.parametrize("name", READERS)
def test_files_of_a_run(name, run):
    check_file(run, name, READERS[name], changes_of(run / name), EXAMPLES[name.rpartition(".")[2]])


# The same run as this version writes it: with checksums, the best policies, and what the loop keeps.

BEST = "policy/best"
LOOP = {"callbacks": {"stop_at_return": [40, 1.5], "patience": [1.5, 40, 2]}}


def episode_log() -> EpisodeLog:
    return EpisodeLog(2, 1, spec().spaces.obs, spec().config)


@pytest.fixture(scope="module")
def newest(run, tmp_path_factory) -> Iterator[Path]:
    copy = tmp_path_factory.mktemp("fuzz") / "newest"
    shutil.copytree(run, copy)
    saved = load(Checkpoints(run, [0, 1]), 160, spec())
    shutil.rmtree(copy / "checkpoints")
    best = {name: np.array(x) for name, x in named_arrays(saved.states.agents.online.policy).items()}
    weights = {seed: {name: x[seed] for name, x in best.items()} for seed in (0, 1)}
    record = policy_record(copy)
    spaces = spaces_from_json(record["spaces"])
    write_policies(copy / BEST, spaces, {**record, "agent_steps_of": {"0": 40, "1": 80}}, weights)
    write_policies(copy / "policy", spaces, record, weights)
    chosen = {"chosen": [[40, 1.5], [80, 2.5]], "latest": 1}
    loop = {**LOOP, "episodes": episode_log().state(), "best": chosen}
    evaluations = (copy / "evals.csv").read_text()
    settings = read_run_json(copy)["settings"]
    Checkpoints(copy, [0, 1]).write(to_checkpoint(saved, [0, 1], evaluations, settings, loop=loop, best=best))
    resumed_loop(copy)
    yield copy
    shutil.rmtree(copy)


def resumed_loop(run: Path) -> None:
    """What a resume reads of a checkpoint of this version."""
    agents = resumed(run).states.agents
    stored = Checkpoints(run, [0, 1]).read(160)
    like = jax.eval_shape(lambda agents: agents.online.policy, agents)
    loop = stored.loop
    for part in ("callbacks", "best", "episodes"):
        if not isinstance(loop.get(part, {}), dict):
            return
    if "best" in loop:
        BestPolicies([0, 1], 1).restore(loop["best"], stored.best(), like, "it")
    if "episodes" in loop:
        episode_log().restore(loop["episodes"], "it")
    for callback in (StopAtReturn(5.0), Patience(3)):
        if callback.name in loop.get("callbacks", {}):
            callback.restore(loop["callbacks"][callback.name])


def best_acts(run: Path) -> None:
    dr_q.load(run, which="best").act(np.zeros(11, np.float32))


NEWEST: dict[str, list[Callable[[Path], Any]]] = {
    "checkpoints/160/checkpoint.json": [resumed_loop, listed],
    "checkpoints/160/agents.safetensors": [resumed_loop, listed],
    "checkpoints/160/replay.safetensors": [resumed_loop, listed],
    "checkpoints/160/episodes.safetensors": [resumed_loop, listed],
    "checkpoints/160/best.safetensors": [resumed_loop, listed],
    "checkpoints/replay/seed0/CHUNK": [resumed_loop, listed],
    "policy/best/policy.json": [best_acts, listed],
    "policy/best/seed0.safetensors": [best_acts, listed],
}


@pytest.mark.parametrize("name", NEWEST)
def test_files_of_a_run_of_this_version(name, newest):
    readers = NEWEST[name]
    if name.endswith("CHUNK"):
        name = str(next((newest / name).parent.glob("*")).relative_to(newest))
    file = newest / name
    whole = file.read_bytes()

    def refused(run: Path) -> None:
        """Whatever changed in it, its checksum says so."""
        with contextlib.nullcontext() if file.read_bytes() == whole else pytest.raises(dr_q.DamagedFileError):
            resumed(run)

    has_checksum = name.startswith("checkpoints") and file.suffix == ".safetensors"
    check_file(newest, name, [*readers, *([refused] if has_checksum else [])], changes_of(file), 20)


def signed(data: bytes) -> bytes:
    """An index with a checksum that is right for what it holds: whoever reads it must look at every field."""
    record = json.loads(data)
    if not isinstance(record, dict):
        return data
    return json.dumps({**record, "index_sha256": checkpoints._own_digest(record)}).encode()  # pyright: ignore[reportPrivateUsage]


def test_an_index_of_wrong_types_with_the_right_checksum(newest):
    name = "checkpoints/160/checkpoint.json"
    changes = damaged_json((newest / name).read_text()).map(signed)
    check_file(newest, name, NEWEST[name], changes, 60)


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
