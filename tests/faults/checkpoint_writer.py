"""Writes a checkpoint, or goes back to one, again and again, with a fault at every single change of the disk.

    python -m tests.faults.checkpoint_writer FOLDER write|resume

In a process of its own, with the shim loaded; it forks for each fault, and nothing in it computes with jax. Prints a
JSON object for each kind of fault: how many changes there are, how many attempts ended there (`stopped`), and how many
left the newer checkpoint. Kinds: a kill in place of a change, a kill in half of the next write, a disk that is full
from a change on.
"""

import ctypes
import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.learner import saving
from dr_q.run_folder import (
    Checkpoint,
    Checkpoints,
    Chunk,
    Evaluation,
    RunTables,
    evaluation_rows,
    tidy_policies,
    write_policies,
)
from dr_q.spaces import ContinuousActions, ObsSpec, Spaces
from tests.faults import damages

SEEDS = [0, 1]
SLOTS = 64
SPACES = Spaces(ObsSpec.vector(3), ContinuousActions((-1.0,), (1.0,)))


def chunk(seed: int, number: int, newest: int) -> Chunk:
    rng = np.random.default_rng([seed, number, newest])
    return Chunk(number * SLOTS, f"{newest}-{seed:08x}", lambda: {"reward": rng.normal(size=SLOTS).astype(np.float32)})


def weights(step: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(step).normal(size=(2, 3000)).astype(np.float32)}


def checkpoint(step: int, evaluations: str) -> Checkpoint:
    """Everything that one of a run has. The first chunk of each seed is the same in all, the second grows."""
    arrays = weights(step)
    return Checkpoint(
        agent_steps=step,
        capacity=1024,
        agents=arrays,
        replay={"y": arrays["x"][:, :10]},
        chunks=[[chunk(seed, 0, 39), chunk(seed, 1, step)] for seed in SEEDS],
        pending={"action": np.zeros((2, 1), np.float32)},
        packet=np.zeros((2, 16), np.uint8),
        episodes=[(3, np.zeros((step, 1), np.float32))] * 2,
        encoder_metrics={"loss": [0.5, 0.25]},
        evaluations=evaluations,
        settings={"steps": 400},
        loop={"callbacks": {}, "episodes": {"open": [[1.0, 2.0], [3, 4]]}, "best": {"chosen": [[step, 1.5]] * 2}},
        best={"x": arrays["x"][:, :100]},
    )


def evaluations(step: int) -> list[Evaluation]:
    return [Evaluation(seed, step, step, 1.5 * step, 0.0, 9.0, 2) for seed in SEEDS]


def save(run: Path, step: int) -> None:
    """As the loop does at a step: rows, then policies, then a checkpoint that has them."""
    tables, checkpoints = RunTables(run, lambda _: None), Checkpoints(run, SEEDS, keep=2)
    checkpoints.tidy()
    tables.append_evaluations(evaluations(step))
    tables.append_metrics(["seed", "agent_steps", "loss"], [[seed, step, 0.5] for seed in SEEDS])
    tables.flush()
    _write_policies(run, step)
    checkpoints.write(checkpoint(step, tables.evaluations_text()))


def _write_policies(run: Path, step: int) -> None:
    by_seed = {seed: {"x": x} for seed, x in zip(SEEDS, weights(step)["x"], strict=True)}
    for folder in (run / "policy", run / "policy" / "best"):
        write_policies(folder, SPACES, {"agent_steps": step}, by_seed)


def _load(checkpoints: Checkpoints, step: int, _: Any) -> tuple[Any, Any]:
    """In place of reading a checkpoint into a learner: all of its files, compared with their checksums."""
    stored = checkpoints.read(step)
    if damage := stored.damages():
        raise saving.DamagedFileError(damage[0])
    for seed in SEEDS:
        assert len(list(stored.chunks(seed, stored.replay()))) == 2
    assert stored.best()
    assert stored.loop["best"]["chosen"] == [[step, 1.5]] * 2
    return step, stored


saving._load = _load  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def resume(run: Path) -> int:
    """As the loop does: the newest checkpoint that is whole, the tables as they were at it; its step."""
    checkpoints = Checkpoints(run, SEEDS, keep=2)
    loaded: Any = saving.load_newest(checkpoints, None, lambda _: None)  # pyright: ignore[reportArgumentType]
    step, stored = loaded
    checkpoints.tidy()
    tidy_policies(run)
    RunTables(run).go_back(step, stored.evaluations, lambda _: None)
    _write_policies(run, step)  # the best ones are in the checkpoint
    assert {int(row["agent_steps"]) for row in evaluation_rows(run)} == set(range(40, step + 1, 40))
    return step


def content(run: Path) -> dict[str, str]:
    files = (path for path in sorted(run.rglob("*")) if path.is_file())
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def damaged(run: Path) -> None:
    """The newest checkpoint is damaged, and there is what kills leave: halves of files, rows of later steps."""
    damages.flip(run / "checkpoints" / "120" / "best.safetensors", random.Random(0))
    for half in ("checkpoints/.part-160/agents", "checkpoints/replay/seed1/00000064-9-0-f3", "policy/best/.tmp"):
        (run / half).parent.mkdir(exist_ok=True)
        (run / f"{half}.safetensors").write_bytes(b"half")
    with (run / "evals.csv").open("a") as rows:
        rows.write("0,160,160,1.0,0.0,9.0,2\n1,16")


def in_fork(work: Callable[[Path], object], run: Path, kind: str, at: int) -> int:
    """Do it with a fault at a change; the exit code: 28 it failed, 3 the fault came and it did not matter, 0 none."""
    shim = ctypes.CDLL(None)  # loaded before this process began
    child = os.fork()
    if not child:
        shim.drq_fault_arm(0 if kind == "full" else at, at if kind == "full" else 0, int(kind == "torn"))
        try:
            work(run)
        except OSError:
            os._exit(28)
        os._exit(0 if shim.drq_fault_changes() < at else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, kind: str, what: str) -> None:
    """One kind of fault, at every change."""
    whole, begun, run = folder / "whole", folder / "begun", folder / "run"
    for base in (whole, begun):
        base.mkdir(parents=True)
        for step in (40, 80):
            save(base, step)
    reaches = {80, 120}
    if what == "write":
        save(whole, 120)  # drops the checkpoint of step 40 and chunks of it
    else:
        save(begun, 120)
        damaged(begun)
        shutil.rmtree(whole)
        shutil.copytree(begun, whole)
        assert resume(whole) == 80
        reaches = {80}
    expected = content(whole)
    found = {"changes": 0, "stopped": 0, "newer": 0}
    while True:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(begun, run)
        at = found["changes"] + 1
        status = in_fork(resume if what == "resume" else lambda run: save(run, 120), run, kind, at)
        assert status in ((0, 28, 3) if kind == "full" else (0, 3, -9)), status
        if kind == "full" and what == "write":
            left = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
            assert not left, left
        reached = resume(run)
        assert reached in reaches
        if what == "write":
            for step in range(reached + 40, 121, 40):
                save(run, step)
        now = content(run)
        assert expected.items() <= now.items()
        if reached == 80:  # an older one may be left where the newest is whole; it goes with the next
            assert now == expected
        if status == 0:
            break
        found["changes"] = at
        found["stopped"] += status in (28, -9)
        found["newer"] += reached == 120
    print(json.dumps({"kind": kind, **found}))


if __name__ == "__main__":
    for fault in ("kill", "torn", "full"):
        main(Path(sys.argv[1]) / fault, fault, sys.argv[2])
