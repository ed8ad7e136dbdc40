"""Damage to the files of a run: every way in which one can be wrong, for every kind of file."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What happens to a file


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


def truncate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


DAMAGES = {"flipped bit": flip, "truncated": truncate, "empty": empty, "removed": remove}


# Which file


def steps_of(run: Path) -> list[int]:
    """Its checkpoints, oldest first."""
    folder = run / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []


def index_of(run: Path, step: int) -> dict[str, Any]:
    """What the checkpoint.json of a step says."""
    return json.loads((run / "checkpoints" / str(step) / "checkpoint.json").read_text())


def chunks_of(run: Path, step: int) -> list[Path]:
    """The chunks that a checkpoint has."""
    index, folder = index_of(run, step), run / "checkpoints" / "replay"
    both = zip(index["seeds"], index["chunks"], strict=True)
    return [folder / f"seed{seed}" / f"{name}.safetensors" for seed, names in both for name in names]


def of_the_checkpoint(name: str) -> Callable[[Path], list[Path]]:
    """A file of the newest checkpoint."""
    return lambda run: [run / "checkpoints" / str(step) / name for step in steps_of(run)[-1:]]


def chunks(run: Path) -> list[Path]:
    """Those of the newest checkpoint; older ones may have them too."""
    return [file for step in steps_of(run)[-1:] for file in chunks_of(run, step)]


def _file(pattern: str) -> Callable[[Path], list[Path]]:
    return lambda run: sorted(run.glob(pattern))


FILES: dict[str, Callable[[Path], list[Path]]] = {
    "agents": of_the_checkpoint("agents.safetensors"),
    "replay": of_the_checkpoint("replay.safetensors"),
    "episodes": of_the_checkpoint("episodes.safetensors"),
    "best": of_the_checkpoint("best.safetensors"),
    "checkpoint.json": of_the_checkpoint("checkpoint.json"),
    "a chunk": chunks,
    "evals.csv": _file("evals.csv"),
    "metrics.csv": _file("metrics.csv"),
    "policy weights": _file("policy/*.safetensors"),
    "policy.json": _file("policy/policy.json"),
    "weights of policy/best": _file("policy/best/*.safetensors"),
    "policy.json of policy/best": _file("policy/best/policy.json"),
    "TensorBoard's file": _file("tensorboard/*"),
    "run.json": _file("run.json"),
}


# Files that are whole, but not what they should be


def of_an_older_step(name: str) -> Callable[[Path, random.Random], Path | None]:
    """The file of the checkpoint before the newest, in the newest."""

    def swap(run: Path, rng: random.Random) -> Path | None:
        files = [run / "checkpoints" / str(step) / name for step in steps_of(run)[-2:]]
        if len(files) < 2 or not all(file.exists() for file in files):
            return None
        shutil.copyfile(files[0], files[1])
        return files[1]

    return swap


def of_another_seed(run: Path, rng: random.Random) -> Path | None:
    """The newest chunk of the first seed in place of that of the last."""
    steps = steps_of(run)
    if not steps or len(index_of(run, steps[-1])["seeds"]) < 2:
        return None
    names, folder = index_of(run, steps[-1])["chunks"], run / "checkpoints" / "replay"
    first, last = (folder / f"seed{seed}" / f"{names[seed][-1]}.safetensors" for seed in (0, len(names) - 1))
    shutil.copyfile(first, last)
    return last


def in_the_index(field: str, value: Any) -> Callable[[Path, random.Random], Path | None]:
    """Another value of a field of the newest checkpoint.json."""

    def change(run: Path, rng: random.Random) -> Path | None:
        steps = steps_of(run)
        if not steps:
            return None
        file = run / "checkpoints" / str(steps[-1]) / "checkpoint.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
        return file

    return change


def stray_files(run: Path, rng: random.Random) -> Path | None:
    """What is no checkpoint, next to them."""
    folder = run / "checkpoints"
    if not (folder / "replay" / "seed0").is_dir():
        return None
    (folder / ".part-60").mkdir(exist_ok=True)
    (folder / ".part-60" / "agents.safetensors").write_bytes(b"half")
    (folder / "notes").write_text("mine")
    (folder / "replay" / "seed0" / "00000000-1-00000000-f3.safetensors").write_bytes(b"half")
    return folder / ".part-60"


def half_a_row(run: Path, rng: random.Random) -> Path | None:
    """A last row of evals.csv that is not whole."""
    file = run / "evals.csv"
    if not file.exists():
        return None
    with file.open("a") as rows:
        rows.write("0,4")
    return file


OTHERS: dict[str, Callable[[Path, random.Random], Path | None]] = {
    "agents of an older step": of_an_older_step("agents.safetensors"),
    "replay of an older step": of_an_older_step("replay.safetensors"),
    "best policies of an older step": of_an_older_step("best.safetensors"),
    "chunk of another seed": of_another_seed,
    "agent_steps 9999": in_the_index("agent_steps", 9999),
    "episodes NaN": in_the_index("episodes", [float("nan")] * 2),
    "chunk names with ..": in_the_index("chunks", [["../../x"], []]),
    "stray files": stray_files,
    "half a row": half_a_row,
}
"""Each gives the file that is wrong now, or None where there is nothing to do it to."""


KINDS = [f"{damage}: {file}" for file in FILES for damage in DAMAGES] + list(OTHERS)


def damage(kind: str, run: Path, rng: random.Random) -> Path | None:
    """Damage a run; which file, or None where there is nothing to do it to."""
    if kind in OTHERS:
        return OTHERS[kind](run, rng)
    how, _, file = kind.partition(": ")
    there = [path for path in FILES[file](run) if path.exists() and path.stat().st_size]
    if not there:
        return None
    chosen = rng.choice(there)
    before = chosen.read_bytes()
    DAMAGES[how](chosen, rng)
    while file == "run.json" and chosen.exists() and _other_steps(before, chosen.read_bytes()):
        chosen.write_bytes(before)
        DAMAGES[how](chosen, rng)
    return chosen


def _other_steps(before: bytes, after: bytes) -> bool:
    """Whether run.json asks for another number of steps: a user may do that, so nobody can take it for damage."""
    try:
        return json.loads(before)["settings"]["steps"] != json.loads(after)["settings"]["steps"]
    except (ValueError, LookupError, TypeError):
        return False
