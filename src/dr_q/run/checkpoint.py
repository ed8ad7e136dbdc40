"""Checkpoints: everything a run needs to go on as if it had never stopped (D6).

    checkpoints/<agent_steps>/checkpoint.json      where the run is, and which chunks of the replay it has
                              agents.safetensors   all seeds' networks, targets and optimisers
                              replay.safetensors   priorities, validity, sums and counters
                              episodes.safetensors the step under way: what was acted on and what came of it, and
                                                   actions since the start of each seed's open episode
    checkpoints/replay/seed<k>/*.safetensors       the transitions, in chunks shared by all checkpoints that have them

Only filled slots are saved. A chunk's name says which content it has (its newest transition, and how far the cursor had
come), so a chunk that did not change since an earlier checkpoint is neither fetched from the device nor written again.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.envs import Transitions
from dr_q.kit import ConfigError
from dr_q.replay.sums import BRANCHING
from dr_q.run import arrays
from dr_q.run import seeds as axis
from dr_q.run.files import sync_folder, write_whole

CHUNK_BYTES = 32 * 2**20
_BY_SLOT = ("obs", "action", "reward", "not_done", "frames_before", "stamp")
"""Fields of the replay that change only where the cursor writes: saved in chunks."""
_SMALL = ("priority", "valid")
"""Fields by slot that change anywhere: saved each time, filled rows only."""


class Saved(NamedTuple):
    """What a checkpoint holds beyond arrays by path."""

    agent_steps: int
    states: axis.SeedStates
    turn: axis.Turn
    """What each seed acted on last, and how."""
    arrived: Transitions
    """What came of it; not in the replays yet."""
    episodes: list[tuple[int, np.ndarray]]
    """Each seed's open episode: its number and its actions so far."""
    frames: np.ndarray | None = None
    """The replays' frames, [S, capacity, ...], where they are in host memory."""
    encoder_seen: drq.EncoderMetrics | None = None
    """What the last encoder updates saw, for the log."""


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path, seeds: list[int], keep: int):
        self.folder = run / "checkpoints"
        self._seeds = seeds
        self._keep = keep

    def steps(self) -> list[int]:
        """Agent steps of the checkpoints that are there, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(int(f.name) for f in self.folder.iterdir() if f.name.isdigit())

    def save(self, saved: Saved) -> Path:
        """Write a checkpoint; it is there whole or not at all. Then drop the oldest beyond what is kept."""
        final = self.folder / str(saved.agent_steps)
        part = self.folder / f".part-{saved.agent_steps}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        replays = saved.states.replays
        chunks = [self._save_chunks(replays, saved.frames, i, seed) for i, seed in enumerate(self._seeds)]
        arrays.write(part / "agents.safetensors", arrays.named(saved.states.agents))
        arrays.write(part / "replay.safetensors", _small_arrays(replays))
        episodes = {f"actions{i}": actions for i, (_, actions) in enumerate(saved.episodes)}
        step = {**arrays.named(saved.turn._asdict()), "packet": saved.arrived.packet}
        arrays.write(part / "episodes.safetensors", {**step, **episodes})
        seen = saved.encoder_seen
        record = {
            "agent_steps": saved.agent_steps,
            "seeds": self._seeds,
            "capacity": replays.spec.capacity,
            "episodes": [number for number, _ in saved.episodes],
            "chunks": chunks,
            "encoder_seen": None if seen is None else {name: x.tolist() for name, x in arrays.named(seen).items()},
        }
        for seed in self._seeds:
            sync_folder(self._chunk_folder(seed))
        sync_folder(self.folder / "replay")
        write_whole(part / "checkpoint.json", json.dumps(record, indent=1) + "\n")
        if final.exists():  # the same step again, after a resume
            shutil.rmtree(final)
        part.replace(final)
        sync_folder(self.folder)
        for old in self.steps()[: -self._keep]:
            shutil.rmtree(self.folder / str(old))
        self.tidy()
        return final

    def load(self, agent_steps: int, task: axis.Task) -> Saved:
        """Read a checkpoint, into replays of at least its capacity; its arrays are numpy's."""
        folder = self.folder / str(agent_steps)
        try:
            record = self._record(folder)
            agents = self.load_agents(agent_steps, task)
            replays, frames = self._load_replays(folder, self._seeds, task)
            stored = arrays.read(folder / "episodes.safetensors")
        except arrays.DamagedError as error:
            older = [step for step in self.steps() if step < agent_steps]
            advice = f"to go on from step {older[-1]:,}, remove {folder}" if older else "train anew with another --out"
            raise ConfigError(f"the checkpoint of step {agent_steps:,} is damaged: {error}; {advice}") from None
        episodes = [(number, stored[f"actions{i}"]) for i, number in enumerate(record["episodes"])]
        turn = axis.Turn(jnp.asarray(stored["frame"]), jnp.asarray(stored["action"]))
        arrived = Transitions(stored["packet"], axis.packet_layout(task.shape))
        states = axis.SeedStates(agents, replays)
        return Saved(record["agent_steps"], states, turn, arrived, episodes, frames, _seen(record.get("encoder_seen")))

    def load_agents(self, agent_steps: int, task: axis.Task) -> drq.Agent:
        """All seeds' agents of a checkpoint, without what else it holds."""
        file = self.folder / str(agent_steps) / "agents.safetensors"
        roots = axis.root_keys(self._seeds)
        return arrays.fill(jax.eval_shape(lambda: axis.init_agents(task, roots)), arrays.read(file), str(file))

    def load_replay(self, agent_steps: int, task: axis.Task, seed: int) -> tuple[rp.Replay, np.ndarray]:
        """One seed's replay, and beside it its frames: [capacity, *frame], in memory only where they are filled."""
        folder = self.folder / str(agent_steps)
        replays, frames = self._load_replays(folder, [seed], task._replace(frames_on_host=True))
        assert frames is not None
        return jax.tree.map(lambda x: x[0], replays), frames[0]

    @staticmethod
    def capacity(folder: Path) -> int:
        """Slots of the replays in a checkpoint's folder."""
        return Checkpoints._record(folder)["capacity"]

    @staticmethod
    def _record(folder: Path) -> dict[str, Any]:
        try:
            return json.loads((folder / "checkpoint.json").read_text())
        except (OSError, ValueError):
            raise arrays.DamagedError(f"{folder}/checkpoint.json cannot be read") from None

    def tidy(self) -> None:
        """Remove what no checkpoint refers to: unfinished ones, and chunks left over."""
        used: dict[int, set[str]] = {seed: set() for seed in self._seeds}
        for step in self.steps():
            try:
                record = self._record(self.folder / str(step))
            except arrays.DamagedError:
                return  # nobody knows what it refers to: leave all
            for seed, names in zip(record["seeds"], record["chunks"], strict=True):
                used[seed] |= set(names)
        for seed in self._seeds:
            folder = self._chunk_folder(seed)
            for file in folder.iterdir() if folder.is_dir() else ():
                if file.name.removesuffix(".safetensors") not in used[seed]:
                    file.unlink()
        for part in self.folder.glob(".part-*"):
            shutil.rmtree(part)

    def _chunk_folder(self, seed: int) -> Path:
        return self.folder / "replay" / f"seed{seed}"

    def _save_chunks(self, replays: rp.Replay, frames: np.ndarray | None, index: int, seed: int) -> list[str]:
        folder = self._chunk_folder(seed)
        folder.mkdir(parents=True, exist_ok=True)
        spec, slots = replays.spec, chunk_slots(replays.spec)
        size, cursor = int(replays.size[index]), int(replays.cursor[index])
        stamp = np.asarray(replays.stamp[index]).reshape(-1)
        names = []
        for start in range(0, size, slots):
            end = min(start + slots, size)
            passed = cursor - start if start <= cursor < start + slots and size == spec.capacity else end - start
            name = f"{start:08d}-{stamp[start:end].max()}-{passed}"
            names.append(name)
            path = folder / f"{name}.safetensors"
            if not path.exists():
                arrays.write(path, _chunk(replays, frames, index, start, end, slots))
        return names

    def _load_replays(self, folder: Path, seeds: list[int], task: axis.Task) -> tuple[rp.Replay, np.ndarray | None]:
        """Some seeds' replays, and their frames if those are for host memory."""
        record = self._record(folder)
        rows = [record["seeds"].index(seed) for seed in seeds]
        roots = axis.root_keys(seeds)
        template = jax.eval_shape(lambda: axis.init_replays(task._replace(frames_on_host=False), roots))
        small = arrays.read(folder / "replay.safetensors")
        if record["capacity"] < template.spec.capacity and small["size"].max() == record["capacity"]:
            raise ConfigError(
                f"{folder} has a full replay of {record['capacity']:,} slots, which cannot go on as one of "
                f"{template.spec.capacity:,}; resume with fewer --steps, or train anew"
            )
        filled = {}
        for name, leaf in arrays.shapes(template).items():
            filled[name] = np.zeros(leaf.shape, leaf.dtype)
            if name in small:  # rows that were saved; the others are empty
                part = small[name][rows]
                filled[name][tuple(slice(0, n) for n in part.shape)] = part
        for index, seed in enumerate(seeds):
            for chunk_name in record["chunks"][rows[index]]:
                start = int(chunk_name.split("-")[0])
                for field, data in arrays.read(self._chunk_folder(seed) / f"{chunk_name}.safetensors").items():
                    flat = filled[field][index]
                    flat = flat.reshape(-1) if field == "stamp" else flat
                    flat[start : start + len(data)] = data
        what = f"{folder}/replay.safetensors"
        if not task.frames_on_host:
            return arrays.fill(template, filled, what), None
        return arrays.fill(jax.eval_shape(lambda: axis.init_replays(task, roots)), filled, what), filled["obs"]


def _seen(record: dict[str, list[float]] | None) -> drq.EncoderMetrics | None:
    """What the log says of encoder updates, [S] each; checkpoints of older versions have none."""
    if record is None:
        return None
    values = {name.rpartition(".")[2]: np.asarray(x, np.float32) for name, x in record.items()}
    loss = values.pop("loss")
    return drq.EncoderMetrics(jnp.asarray(loss), drq.EncoderTerms(**{k: jnp.asarray(x) for k, x in values.items()}))


def chunk_slots(spec: rp.ReplaySpec) -> int:
    """Slots in a chunk: whole rows, of about 32 MiB."""
    item = 1 if spec.pixels else 4
    slot_bytes = int(np.prod(spec.frame_shape)) * item + 4 * spec.action_dim + 13
    return max(1, CHUNK_BYTES // slot_bytes // BRANCHING) * BRANCHING


def _chunk(
    replays: rp.Replay, frames: np.ndarray | None, index: int, start: int, end: int, slots: int
) -> dict[str, np.ndarray]:
    found = {}
    for field in _BY_SLOT:
        whole = getattr(replays, field) if field != "obs" or frames is None else frames
        if field == "stamp":
            found[field] = np.asarray(whole[index]).reshape(-1)[start:end]
            continue
        # Read a window of fixed size, so that one compiled slice serves every chunk.
        width = min(slots, whole.shape[1])
        origin = min(start, whole.shape[1] - width)
        window = np.asarray(_window(whole, index, origin, width))
        found[field] = window[start - origin : end - origin]
    return found


def _window(whole: jax.Array | np.ndarray, index: int, origin: int, width: int) -> jax.Array | np.ndarray:
    if isinstance(whole, np.ndarray):
        return whole[index, origin : origin + width]
    starts = (index, origin, *(0,) * (whole.ndim - 2))
    return jax.lax.dynamic_slice(whole, starts, (1, width, *whole.shape[2:]))[0]


def _small_arrays(replays: rp.Replay) -> dict[str, np.ndarray]:
    rows = -(-int(np.max(np.asarray(replays.size))) // BRANCHING)
    rest = {field: getattr(replays, field)[:, :rows] for field in _SMALL}
    for field in dataclasses.fields(replays):
        if field.name not in (*_BY_SLOT, *_SMALL, "spec"):
            rest[field.name] = getattr(replays, field.name)
    return arrays.named(rest)
