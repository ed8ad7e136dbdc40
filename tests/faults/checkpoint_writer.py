"""Writes a checkpoint again and again, with a fault at every single change that it makes to the disk.

    python -m tests.faults.checkpoint_writer FOLDER kill|torn|full

In a process of its own, with the shim loaded and without jax: it forks for each fault. Prints a JSON object.
"""

import ctypes
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from dr_q.run_folder import Checkpoint, Checkpoints, Chunk, Evaluation, RunTables, evaluation_rows

SEEDS = [0, 1]
SLOTS = 64


def chunk(seed: int, number: int, newest: int) -> Chunk:
    rng = np.random.default_rng([seed, number, newest])
    return Chunk(number * SLOTS, f"{newest}-{seed:08x}", lambda: {"reward": rng.normal(size=SLOTS).astype(np.float32)})


def checkpoint(step: int, evaluations: str) -> Checkpoint:
    """The first chunk of each seed is the same in all checkpoints, the second grows."""
    rng = np.random.default_rng(step)
    arrays = {"x": rng.normal(size=(2, 3000)).astype(np.float32)}
    return Checkpoint(
        agent_steps=step,
        capacity=1024,
        agents=arrays,
        replay={"y": arrays["x"][:, :10]},
        chunks=[[chunk(seed, 0, 39), chunk(seed, 1, step)] for seed in SEEDS],
        pending={"action": np.zeros((2, 1), np.float32)},
        packet=np.zeros((2, 16), np.uint8),
        episodes=[(3, np.zeros((step, 1), np.float32))] * 2,
        encoder_metrics=None,
        evaluations=evaluations,
    )


def evaluations(step: int) -> list[Evaluation]:
    return [Evaluation(seed, step, step, 1.5 * step, 0.0, 9.0, 2) for seed in SEEDS]


def save(run: Path, step: int) -> None:
    """As the loop does at a step: rows, then a checkpoint that has them."""
    tables, checkpoints = RunTables(run, lambda _: None), Checkpoints(run, SEEDS, keep=2)
    checkpoints.tidy()
    tables.append_evaluations(evaluations(step))
    tables.flush()
    checkpoints.write(checkpoint(step, tables.evaluations_text()))


def resume(run: Path) -> int:
    """Go back to the newest checkpoint, all of which must be whole; its step."""
    checkpoints = Checkpoints(run, SEEDS, keep=2)
    steps = checkpoints.steps()
    for step in steps:
        stored = checkpoints.read(step)
        assert stored.damages() == [], f"{step}: {stored.damages()}"
        for seed in SEEDS:
            assert len(list(stored.chunks(seed, stored.replay()))) == 2
    checkpoints.tidy()
    RunTables(run).go_back(steps[-1], checkpoints.read(steps[-1]).evaluations, lambda _: None)
    assert {int(row["agent_steps"]) for row in evaluation_rows(run)} == set(range(40, steps[-1] + 1, 40))
    return steps[-1]


def content(run: Path) -> dict[str, str]:
    files = (path for path in sorted(run.rglob("*")) if path.is_file())
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main(folder: Path, kind: str) -> None:
    shim = ctypes.CDLL(None)  # loaded before this process began
    whole, begun, run = folder / "whole", folder / "begun", folder / "run"
    for base in (whole, begun):
        base.mkdir(parents=True)
        for step in (40, 80):
            save(base, step)
    save(whole, 120)  # drops the checkpoint of step 40 and chunks of it
    expected = content(whole)
    survived, newer, changes = 0, 0, 0
    while True:
        at = survived + 1
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(begun, run)
        child = os.fork()
        if not child:
            shim.drq_fault_arm(0 if kind == "full" else at, at if kind == "full" else 0, int(kind == "torn"))
            try:
                save(run, 120)
            except OSError:
                os._exit(28)
            os._exit(0 if shim.drq_fault_changes() < at else 3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in ((0, 28, 3) if kind == "full" else (0, 3, -9)), status
        reached = resume(run)
        assert reached in (80, 120)
        newer += reached == 120
        if kind == "full":
            left = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
            assert not left, left
        for step in range(reached + 40, 121, 40):
            save(run, step)
        found = content(run)
        assert expected.items() <= found.items()
        if reached == 80:  # an older one may be left where the newest is whole; it goes with the next
            assert found == expected
        if status == 0:
            break
        survived, changes = survived + 1, at
    print(json.dumps({"kind": kind, "faults": survived, "changes": changes, "newer": newer}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
