"""Between the learner's states and the arrays of a checkpoint.

Only filled slots are saved. A chunk's name says which content it has (by the stamps of its transitions), so a chunk
that did not change since an earlier checkpoint is not even fetched from the device.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.agent.named_arrays import fill_tree, named_arrays, named_leaves
from dr_q.envs import Transitions
from dr_q.kit import DamagedFileError, RunFolderError, spelled
from dr_q.learner.steps import (
    LearnerSpec,
    PendingTransition,
    SeedStates,
    init_agents,
    init_replays,
    packet_layout,
    root_keys,
)
from dr_q.run_folder import Checkpoint, Checkpoints, Chunk, StoredCheckpoint

CHUNK_BYTES = 32 * 2**20
_BY_SLOT = ("obs", "action", "reward", "not_done", "frames_before", "is_transition", "stamp")
"""Fields of the storage that change only where the cursor writes: saved in chunks."""
Arrays = dict[str, np.ndarray]


class Saved(NamedTuple):
    """Where a run is."""

    agent_steps: int
    states: SeedStates
    pending: PendingTransition
    """What each seed acted on last, and how."""
    arrived: Transitions
    """What came of it; not in the replays yet."""
    episodes: list[tuple[int, np.ndarray]]
    """The open episode of each seed's environments: its number and its actions so far."""
    frames: Arrays | None = None
    """The replays' frames by part, [S, capacity, ...], where they are in host memory."""
    encoder_metrics: drq.EncoderMetrics | None = None
    """What the last encoder updates saw, for the log."""


def to_checkpoint(
    saved: Saved,
    seeds: Sequence[int],
    evaluations: str | None = None,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> Checkpoint:
    """As arrays by name; `evaluations` is what evals.csv has so far, `settings` what run.json has.

    `more`: what else of `Checkpoint` there is, `loop` and `best`.
    """
    replays, seen = saved.states.replays, saved.encoder_metrics
    return Checkpoint(
        agent_steps=saved.agent_steps,
        capacity=replays.spec.capacity,
        agents=named_arrays(saved.states.agents),
        replay=_outside_chunks(replays),
        chunks=[_chunks(replays.storage, saved.frames, index) for index in range(len(seeds))],
        pending=named_arrays(saved.pending),
        packet=saved.arrived.packet,
        episodes=saved.episodes,
        encoder_metrics=None if seen is None else {name: x.tolist() for name, x in named_arrays(seen).items()},
        evaluations=evaluations,
        settings=settings,
        **more,
    )


def load_newest(
    checkpoints: Checkpoints, spec: LearnerSpec, say: Callable[[str], None]
) -> tuple[Saved, StoredCheckpoint]:
    """Read the newest checkpoint that is whole; newer ones, which are damaged, are renamed.

    Args:
        checkpoints: Of the run; there is at least one.
        spec: What to read it into.
        say: Takes a line for each that is damaged, and one for a format without checksums.

    Raises:
        DamagedFileError: If none is whole; nothing is renamed then.
    """
    damages: list[tuple[int, str]] = []
    for step in reversed(checkpoints.steps()):
        try:
            saved, stored = _load(checkpoints, step, spec)
        except DamagedFileError as error:
            damages.append((step, str(error)))
            continue
        for damaged, why in damages:
            place = checkpoints.set_aside(damaged)
            say(
                f"the checkpoint of step {damaged:,} is damaged ({why}) and is now {place}; "
                f"resuming from step {step:,} instead"
            )
        if not stored.has_checksums:
            say(f"the checkpoint of step {step:,} is of a format without checksums: damage in it would not be noticed")
        return saved, stored
    step, why = damages[0]
    others = "".join(f"; that of step {step:,}: {why}" for step, why in damages[1:])
    raise DamagedFileError(
        f"the checkpoint of step {step:,} is damaged: {why}{others}; no other is left: take these files from a backup, "
        f"or train again with another {spelled('out')}"
    )


def load(checkpoints: Checkpoints, agent_steps: int, spec: LearnerSpec) -> Saved:
    """Read a checkpoint, into replays of at least its capacity; its arrays are numpy's."""
    return _load(checkpoints, agent_steps, spec)[0]


def _load(checkpoints: Checkpoints, agent_steps: int, spec: LearnerSpec) -> tuple[Saved, StoredCheckpoint]:
    stored = checkpoints.read(agent_steps)
    damages = stored.damages()
    if damages:
        raise DamagedFileError(damages[0] + (f", and {len(damages) - 1} more" if damages[1:] else ""))
    agents = load_agents(stored, spec)
    replays, frames = _load_replays(stored, stored.seeds, spec)
    pending, packet, episodes = stored.step()
    missing = [
        name for name in ("action", *(f"frame.{name}" for name, _ in spec.spaces.obs.parts)) if name not in pending
    ]
    if missing:
        raise DamagedFileError(f"{stored.folder}, episodes: it has no array '{missing[0]}'")
    frame = {name.removeprefix("frame."): jnp.asarray(x) for name, x in pending.items() if name.startswith("frame.")}
    saved = Saved(
        stored.agent_steps,
        SeedStates(agents, replays),
        PendingTransition(frame, jnp.asarray(pending["action"])),
        Transitions(packet, packet_layout(spec)),
        episodes,
        frames,
        _encoder_metrics(stored.encoder_metrics, len(stored.seeds)),
    )
    return saved, stored


def load_agents(stored: StoredCheckpoint, spec: LearnerSpec) -> drq.Agent:
    """All seeds' agents of a checkpoint, without what else it holds."""
    roots = root_keys(stored.seeds)
    return fill_tree(jax.eval_shape(lambda: init_agents(spec, roots)), stored.agents(), f"{stored.folder}, agents")


def load_replay(stored: StoredCheckpoint, spec: LearnerSpec, seed: int) -> tuple[rp.Replay, Arrays]:
    """One seed's replay and its frames, [capacity, *frame], which take memory only where they are filled."""
    replays, frames = _load_replays(stored, [seed], spec._replace(frames_on_host=True))
    assert frames is not None
    return jax.tree.map(lambda x: x[0], replays), {name: x[0] for name, x in frames.items()}


def chunk_slots(spec: rp.StorageSpec) -> int:
    """Slots in a chunk: whole rows, of about 32 MiB."""
    return max(1, CHUNK_BYTES // rp.slot_bytes(spec.obs, spec.action_dim) // rp.ROW) * rp.ROW


def _load_replays(stored: StoredCheckpoint, seeds: Sequence[int], spec: LearnerSpec) -> tuple[rp.Replay, Arrays | None]:
    """Some seeds' replays, and their frames if those are for host memory."""
    rows = [stored.seeds.index(seed) for seed in seeds]
    roots = root_keys(seeds)
    template = jax.eval_shape(lambda: init_replays(spec._replace(frames_on_host=False), roots))
    small = stored.replay()
    if stored.capacity < template.spec.capacity:
        small = _in_a_larger_ring(small, stored, template.spec)
    filled: Arrays = {}
    for name, leaf in named_leaves(template).items():
        filled[name] = np.zeros(leaf.shape, leaf.dtype)
        if name in small:  # rows that were saved; the others are empty
            saved = small[name]
            if (
                saved.ndim != leaf.ndim
                or saved.shape[0] != len(stored.seeds)
                or _larger(saved.shape[1:], leaf.shape[1:])
            ):
                raise DamagedFileError(
                    f"{stored.folder}, replay: '{name}' has shape {saved.shape}, expected at most {leaf.shape}"
                )
            part = saved[rows]
            filled[name][tuple(slice(0, n) for n in part.shape)] = part
        elif not _in_chunks(name):
            raise DamagedFileError(f"{stored.folder}, replay: it has no array '{name}'")
    for index, seed in enumerate(seeds):
        for start, arrays in stored.chunks(seed, small):
            for field, data in arrays.items():
                _put_chunk(filled, field, index, start, data, f"{stored.folder}, replay of seed {seed}")
    what = f"{stored.folder}, replay"
    if not spec.frames_on_host:
        return fill_tree(template, filled, what), None
    frames = {name: filled[f"storage.obs.{name}"] for name, _ in spec.spaces.obs.parts}
    return fill_tree(jax.eval_shape(lambda: init_replays(spec, roots)), filled, what), frames


def _in_a_larger_ring(small: Arrays, stored: StoredCheckpoint, spec: rp.StorageSpec) -> Arrays:
    """A full ring whose next slot is its first is in order: the next one is then the first of the new slots."""
    size, cursor = small["storage.size"], small["storage.cursor"]
    first = np.asarray(spec.each_lane())
    full = size * spec.lanes == stored.capacity
    if np.any(full & (cursor != first)):
        raise RunFolderError(
            f"{stored.folder} has a full replay of {stored.capacity:,} slots, which cannot be continued as one of "
            f"{spec.capacity:,}; resume with fewer {spelled('steps')}, or train again"
        )
    return {**small, "storage.cursor": np.where(full, first + stored.capacity, cursor).astype(cursor.dtype)}


def _put_chunk(filled: Arrays, field: str, index: int, start: int, data: np.ndarray, what: str) -> None:
    """Put an array of a chunk where it belongs."""
    name = f"storage.{field}"
    if name not in filled:
        raise DamagedFileError(f"{what}: '{field}' is not an array of a replay")
    flat = filled[name][index]
    flat = flat.reshape(-1) if field == "stamp" else flat
    place = flat[start : start + len(data)]
    if place.shape != data.shape:
        raise DamagedFileError(f"{what}: '{field}' has shape {data.shape} at slot {start}, expected {place.shape}")
    place[...] = data


def _larger(shape: tuple[int, ...], room: tuple[int, ...]) -> bool:
    return any(n > most for n, most in zip(shape, room, strict=True))


def _encoder_metrics(record: dict[str, list[float]] | None, seeds: int) -> drq.EncoderMetrics | None:
    """What the log says of encoder updates, [S] each; terms that the checkpoint's version did not have are 0."""
    if record is None:
        return None
    values = {name.rpartition(".")[2]: jnp.asarray(x, jnp.float32) for name, x in record.items()}
    terms = {term.name: values.get(term.name, jnp.zeros(seeds)) for term in drq.TERMS}
    return drq.EncoderMetrics(values.get("loss", jnp.zeros(seeds)), terms)


def _in_chunks(name: str) -> bool:
    """Whether an array of a replay is saved in chunks."""
    room, *field = name.split(".")
    return room == "storage" and field[0] in _BY_SLOT


def _outside_chunks(replays: rp.Replay) -> Arrays:
    """What changes anywhere at any time; arrays that lie in rows of slots without their empty rows."""
    filled = -(-replays.spec.lanes * int(np.max(np.asarray(replays.storage.size))) // rp.ROW)
    by_rows = (replays.spec.rows, rp.ROW)
    kept = {name: x for name, x in named_leaves(replays).items() if not _in_chunks(name)}
    return {name: np.asarray(x[:, :filled] if x.shape[1:] == by_rows else x) for name, x in kept.items()}


def _chunks(storage: rp.Storage, frames: Arrays | None, index: int) -> list[Chunk]:
    # Slots of lanes alternate; one that had more episodes than others, with their final observations, goes further.
    slots, size = chunk_slots(storage.spec), storage.spec.lanes * int(np.max(np.asarray(storage.size[index])))
    stamp = np.asarray(storage.stamp[index]).reshape(-1)
    chunks = []
    for start in range(0, size, slots):
        end = min(start + slots, size)
        here = stamp[start:end]

        def read(start: int = start, end: int = end) -> Arrays:
            return _read_chunk(storage, frames, index, start, end, slots)

        chunks.append(Chunk(start, f"{here.max()}-{zlib.crc32(here.tobytes()):08x}", read))
    return chunks


def _read_chunk(storage: rp.Storage, frames: Arrays | None, index: int, start: int, end: int, slots: int) -> Arrays:
    fields: dict[str, Any] = {name: getattr(storage, name) for name in _BY_SLOT}
    fields["obs"] = fields["obs"] if frames is None else frames
    found = {"stamp": np.asarray(fields.pop("stamp")[index]).reshape(-1)[start:end]}
    for name, whole in named_leaves(fields).items():
        # Read a window of fixed size, so that one compiled slice serves every chunk.
        width = min(slots, whole.shape[1])
        origin = min(start, whole.shape[1] - width)
        window = np.asarray(_window(whole, index, origin, width))
        found[name] = window[start - origin : end - origin]
    return found


def _window(whole: jax.Array | np.ndarray, index: int, origin: int, width: int) -> jax.Array | np.ndarray:
    if isinstance(whole, np.ndarray):
        return whole[index, origin : origin + width]
    starts = (index, origin, *(0,) * (whole.ndim - 2))
    return jax.lax.dynamic_slice(whole, starts, (1, width, *whole.shape[2:]))[0]
