"""Checkpoints: everything a run needs to continue as if it had never stopped (D6), as arrays by name.

    checkpoints/<agent_steps>/checkpoint.json      where the run is, and which chunks of the replay it has
                              agents.safetensors   all seeds' networks, targets and optimisers
                              replay.safetensors   priorities, validity, sums and counters
                              episodes.safetensors the step under way: what was acted on and what came of it, and
                                                   actions since the start of each seed's open episode
    checkpoints/replay/seed<k>/*.safetensors       the transitions, in chunks shared by all checkpoints that have them

A chunk's name says which content it has, so one that did not change since an earlier checkpoint is not written again.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dr_q.kit import DamagedFileError, sync_folder, write_text
from dr_q.run_folder.arrays import read_arrays, write_arrays
from dr_q.run_folder.formats import (
    FORMAT,
    check_format,
    upgrade_chunk,
    upgrade_index,
    upgrade_replay,
    upgrade_step,
    upgrade_weights,
)

Arrays = dict[str, np.ndarray]
_INDEX, _AGENTS, _REPLAY, _EPISODES = (
    "checkpoint.json",
    "agents.safetensors",
    "replay.safetensors",
    "episodes.safetensors",
)
_NEEDED = ("agent_steps", "seeds", "capacity", "episodes", "chunks", "encoder_metrics")


class Chunk(NamedTuple):
    """Some consecutive slots of a seed's replay."""

    start: int
    """The first slot."""
    version: str
    """Says which content the slots have."""
    read: Callable[[], Arrays]
    """The content, read only if it is not in the folder yet."""

    @property
    def name(self) -> str:
        """Of its file. The format is in it: a chunk of an older format must not be taken for one of this."""
        return f"{self.start:08d}-{self.version}-f{FORMAT}"


class Checkpoint(NamedTuple):
    """What is written."""

    agent_steps: int
    capacity: int
    """Slots of each replay."""
    agents: Arrays
    replay: Arrays
    """All but what is in chunks."""
    chunks: list[list[Chunk]]
    """Of each seed."""
    pending: Arrays
    """What each seed acted on last, and how."""
    packet: np.ndarray
    """What came of it; not in the replays yet."""
    episodes: list[tuple[int, np.ndarray]]
    """Each seed's open episode: its number and its actions so far."""
    encoder_metrics: dict[str, list[float]] | None
    """Of the last encoder updates, for the log."""


class StoredCheckpoint:
    """A checkpoint in a run's folder, read part by part; older formats are brought up to date."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._record, self._version = _read_index(folder)
        self.agent_steps: int = self._record["agent_steps"]
        self.seeds: list[int] = self._record["seeds"]
        self.capacity: int = self._record["capacity"]
        """Slots of each replay."""
        self.encoder_metrics: dict[str, list[float]] | None = self._record["encoder_metrics"]

    def agents(self) -> Arrays:
        """All seeds' networks, targets and optimisers."""
        return upgrade_weights(read_arrays(self.folder / _AGENTS), self._version)

    def replay(self) -> Arrays:
        """All seeds' replays but for what is in chunks; filled rows only."""
        return upgrade_replay(read_arrays(self.folder / _REPLAY), self._version)

    def chunks(self, seed: int, replay: Arrays) -> Iterator[tuple[int, Arrays]]:
        """First slot and arrays of each chunk of a seed; `replay` is what `replay()` gave."""
        row = self.seeds.index(seed)
        for name in self._record["chunks"][row]:
            start = int(name.split("-")[0])
            arrays = read_arrays(_chunk_folder(self.folder.parent, seed) / f"{name}.safetensors")
            yield start, upgrade_chunk(arrays, replay, row, start, self._version)

    def step(self) -> tuple[Arrays, np.ndarray, list[tuple[int, np.ndarray]]]:
        """The pending transitions, the packet of their outcome, and each seed's open episode."""
        stored = upgrade_step(read_arrays(self.folder / _EPISODES), self._version)
        episodes = [(number, stored.pop(f"actions{i}")) for i, number in enumerate(self._record["episodes"])]
        return stored, stored.pop("packet"), episodes

    @property
    def chunk_names(self) -> dict[int, list[str]]:
        """Of each seed."""
        return dict(zip(self.seeds, self._record["chunks"], strict=True))


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path, seeds: list[int], keep: int = 1):
        self.folder = run / "checkpoints"
        self._seeds = seeds
        self._keep = keep

    def steps(self) -> list[int]:
        """Agent steps of the checkpoints that are there, oldest first."""
        return checkpoint_steps(self.folder.parent)

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; it is there whole or not at all. Then drop the oldest beyond what is kept."""
        final = self.folder / str(checkpoint.agent_steps)
        part = self.folder / f".part-{checkpoint.agent_steps}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for seed, chunks in zip(self._seeds, checkpoint.chunks, strict=True):
            self._write_chunks(seed, chunks)
        write_arrays(part / _AGENTS, checkpoint.agents)
        write_arrays(part / _REPLAY, checkpoint.replay)
        actions = {f"actions{i}": actions for i, (_, actions) in enumerate(checkpoint.episodes)}
        write_arrays(part / _EPISODES, {**checkpoint.pending, "packet": checkpoint.packet, **actions})
        record = {
            "format": FORMAT,
            "agent_steps": checkpoint.agent_steps,
            "seeds": self._seeds,
            "capacity": checkpoint.capacity,
            "episodes": [number for number, _ in checkpoint.episodes],
            "chunks": [[chunk.name for chunk in chunks] for chunks in checkpoint.chunks],
            "encoder_metrics": checkpoint.encoder_metrics,
        }
        sync_folder(self.folder / "replay")
        write_text(part / _INDEX, json.dumps(record, indent=1) + "\n")
        part.replace(final)
        sync_folder(self.folder)
        for old in self.steps()[: -self._keep]:
            shutil.rmtree(self.folder / str(old))
        self.tidy()
        return final

    def read(self, agent_steps: int) -> StoredCheckpoint:
        """The checkpoint of that step."""
        return StoredCheckpoint(self.folder / str(agent_steps))

    def tidy(self) -> None:
        """Remove what no checkpoint refers to: unfinished ones, and chunks left over."""
        used: dict[int, set[str]] = {seed: set() for seed in self._seeds}
        for step in self.steps():
            try:
                names = self.read(step).chunk_names
            except DamagedFileError:
                return  # nobody knows what it refers to: leave all
            for seed, mine in names.items():
                used[seed] |= set(mine)
        for seed in self._seeds:
            folder = _chunk_folder(self.folder, seed)
            for file in folder.iterdir() if folder.is_dir() else ():
                if file.name.removesuffix(".safetensors") not in used[seed]:
                    file.unlink()
        for part in self.folder.glob(".part-*"):
            shutil.rmtree(part)

    def _write_chunks(self, seed: int, chunks: list[Chunk]) -> None:
        folder = _chunk_folder(self.folder, seed)
        folder.mkdir(parents=True, exist_ok=True)
        for chunk in chunks:
            path = folder / f"{chunk.name}.safetensors"
            if not path.exists():
                write_arrays(path, chunk.read())
        sync_folder(folder)


def checkpoint_steps(run: Path) -> list[int]:
    """Agent steps of a run's checkpoints, oldest first."""
    folder = run / "checkpoints"
    return sorted(int(f.name) for f in folder.iterdir() if f.name.isdigit()) if folder.is_dir() else []


def _chunk_folder(checkpoints: Path, seed: int) -> Path:
    return checkpoints / "replay" / f"seed{seed}"


def _read_index(folder: Path) -> tuple[dict[str, Any], int]:
    """What checkpoint.json says, as of this format, and its own, which is checked first: a newer one differs."""
    try:
        record = json.loads((folder / _INDEX).read_text())
    except (OSError, ValueError):
        record = None
    if not isinstance(record, dict):
        raise DamagedFileError(f"{folder / _INDEX} cannot be read")
    version = check_format(record, folder / _INDEX)
    record = upgrade_index(record, version)
    missing = [name for name in _NEEDED if name not in record]
    if missing:
        raise DamagedFileError(f"{folder / _INDEX} is damaged: it has no {missing[0]}")
    return record, version
