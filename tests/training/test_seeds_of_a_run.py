"""Several seeds in one run: different, reproducible, and independent of each other."""

import csv
from pathlib import Path

import dr_q
from tests.envs import toys
from tests.training import tiny


def run(folder: Path, first: int) -> Path:
    dr_q.train(toys.Walk, seeds=2, seed=first, steps=tiny.STEPS, out=folder, **tiny.RUN, **tiny.SIZES)
    return folder


def evaluations(folder: Path, seed: int) -> list[dict[str, str]]:
    return [row for row in csv.DictReader((folder / "evals.csv").read_text().splitlines()) if row["seed"] == str(seed)]


def test_seeds_differ_repeat_and_do_not_depend_on_their_neighbours(tmp_path):
    first, again, shifted = run(tmp_path / "a", 0), run(tmp_path / "b", 0), run(tmp_path / "c", 1)
    returns = [[row["return_mean"] for row in evaluations(first, seed)] for seed in (0, 1)]
    assert returns[0] != returns[1]
    assert (first / "evals.csv").read_bytes() == (again / "evals.csv").read_bytes()
    for seed in (0, 1):
        name = f"policy/seed{seed}.safetensors"
        assert (first / name).read_bytes() == (again / name).read_bytes()
    # Seed 1 is second next to seed 0, and first next to seed 2.
    assert evaluations(first, 1) == evaluations(shifted, 1)
    assert (first / "policy/seed1.safetensors").read_bytes() == (shifted / "policy/seed1.safetensors").read_bytes()
