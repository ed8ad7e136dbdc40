"""Transitions that exist before a run (`prefill`): of a Minari dataset, an .npz file, or another run's replay.

They enter the replay in the order in which they were recorded, as if the run had just made them: the newest has age 0,
and all have the priority of a new transition. Where they do not fit, the newest episodes are taken.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dr_q import replay as rp
from dr_q.config import config_from_json
from dr_q.kit import ConfigError, DamagedFileError, MissingPackageError, RunFolderError, is_installed, spelled
from dr_q.learner import LearnerSpec
from dr_q.learner.saving import load_replay
from dr_q.run_folder import Checkpoints, is_run, policy_record, read_run_json
from dr_q.spaces import (
    SINGLE,
    ContinuousActions,
    DiscreteActions,
    Image,
    ObsSpec,
    Spaces,
    Vector,
    at_path,
    one_hot,
    spaces_from_json,
)
from dr_q.training.initial_weights import described, seeds_of_source

MINARI = "minari:"
"""What the name of a Minari dataset begins with."""
NPZ_KEYS = ("observations", "actions", "rewards", "next_observations", "terminations", "truncations")
"""Arrays of an .npz file, a row for each transition; observations of several parts as `observations/PART`."""
_OUTSIDE = 1e-3
"""Share of an action's range by which it may lie outside its bounds; it is clipped."""
_LARGEST = float(np.finfo(np.float32).max)
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass
class Recorded:
    """Transitions of one seed, in order, as the replay stores them; the last one ends its episode."""

    obs: Arrays
    """Newest frames by part, [N, *frame]."""
    action: np.ndarray
    """[N, A], in [-1, 1] or one-hot."""
    reward: np.ndarray
    next_obs: Arrays
    terminated: np.ndarray
    truncated: np.ndarray

    def __len__(self) -> int:
        """Transitions."""
        return len(self.reward)

    @property
    def ends(self) -> np.ndarray:
        """Whether an episode ends with each."""
        return self.terminated | self.truncated

    def part(self, where: slice) -> "Recorded":
        """Some of them."""

        def cut(value: Any) -> Any:
            return {name: x[where] for name, x in value.items()} if isinstance(value, dict) else value[where]

        return Recorded(**{field.name: cut(getattr(self, field.name)) for field in dataclasses.fields(self)})


@dataclasses.dataclass
class PriorData:
    """What enters the replays before step 0."""

    by_seed: list[Recorded]
    """Of each seed of the new run: the same number for all."""
    record: dict[str, Any]
    """For run.json."""

    @property
    def count(self) -> int:
        """Transitions of each seed."""
        return len(self.by_seed[0])

    @property
    def line(self) -> str:
        """What was taken."""
        record = self.record
        uneven = record.get("uneven", 0)
        left_out = record["left_out"] - uneven
        more = f"; {left_out:,} older ones do not fit and are left out" if left_out else ""
        each = "each environment of a seed gets the same number"
        more += f"; the {uneven:,} oldest of the others are left out, so that {each}" if uneven else ""
        return (
            f"{record['transitions']:,} transitions of {record['source']} ({record['episodes']:,} episodes, mean "
            f"reward {record['reward_mean']:.4g}) enter the replay{more}"
        )

    def stacked(self, lanes: int = 1) -> tuple[rp.Transition, np.ndarray]:
        """As [S, N, ...] arrays, and whether an episode ends with each transition.

        With several lanes they are [S, N, L, ...]: each lane gets a part of them, which follow each other in time.
        """
        by_lane = [_lanes_of(one, lanes) for one in self.by_seed]

        def join(values: list[np.ndarray]) -> np.ndarray:
            return values[0] if lanes == 1 else np.stack(values, axis=1)

        def stack(read: Callable[[Recorded], Any]) -> Any:
            first = read(by_lane[0][0])
            if isinstance(first, dict):
                return {name: np.stack([join([read(x)[name] for x in parts]) for parts in by_lane]) for name in first}
            return np.stack([join([read(x) for x in parts]) for parts in by_lane])

        names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
        return rp.Transition(*(stack(lambda one, n=n: getattr(one, n)) for n in names)), stack(lambda one: one.ends)


def check_prior_data(source: str) -> None:
    """Refuse what cannot be read, before anything is made or compiled."""
    if _is_minari(source):
        if not (is_installed("minari") and is_installed("h5py")):
            raise MissingPackageError(
                f"{spelled('prefill')} {source} needs minari, which is not installed: pip install 'dr-q[minari]'"
            )
    elif not (os.path.isdir(source) or os.path.isfile(source)):  # noqa: PTH112, PTH113 - False for what can be no path
        there = "is no file" if os.path.lexists(source) else "is not there"  # a pipe or a device may never end
        raise RunFolderError(f"{spelled('prefill')} {source} {there}; give a run's folder, an .npz file, or {MINARI}ID")


def read_prior_data(
    source: str,
    spaces: Spaces,
    seeds: Sequence[int],
    capacity: int,
    *,
    horizon: int,
    lanes: int = 1,
    digests: bool = True,
) -> PriorData:
    """The transitions that `prefill` names, as the replay stores them.

    Args:
        source: A run's folder, an .npz file, or `minari:ID`.
        spaces: Of the environment of the new run.
        seeds: Of the new run.
        capacity: Slots of its replay.
        horizon: Transitions of a window.
        lanes: Environments of each seed, which get the same number of transitions each.
        digests: Whether to compute what identifies the transitions.

    Raises:
        RunFolderError: There is no such thing, or it is of another environment.
        ConfigError: It cannot be learnt from.
    """
    check_prior_data(source)
    path = Path(source)
    of_seed: dict[int, int] = {}
    gaps = 0
    if _is_minari(source):
        kind, found = "minari", [_read_minari(source, spaces)]
    elif path.is_dir():
        kind = "run"
        of_seed, found = _read_run(path, spaces, seeds)
    else:
        kind, (one, gaps) = "npz", _read_npz(path, spaces)
        found = [one]
    whole = found
    found = [_newest(one, capacity) for one in found]
    fitting = min(map(len, found))
    count = fitting // lanes * lanes
    found = [one.part(slice(len(one) - count, None)) for one in found]
    for one in found:
        for part in _lanes_of(one, lanes):
            _check(source, part, spaces.obs, horizon, gaps)
    distinct = {id(one): one for one in found}
    record = {
        "source": source,
        "kind": kind,
        "transitions": count,
        "slots": lanes * max(len(part) + int(part.ends.sum()) for one in found for part in _lanes_of(one, lanes)),
        "episodes": int(found[0].ends.sum()),
        "left_out": max(map(len, whole)) - count,
        **({"uneven": fitting - count} if fitting > count else {}),
        "reward_mean": float(np.mean([one.reward.mean() for one in found])),
        **({"seeds": {str(seed): other for seed, other in of_seed.items()}} if of_seed else {}),
        **({"sha256": _digest(distinct.values())} if digests else {}),
    }
    return PriorData([found[i if len(found) > 1 else 0] for i in range(len(seeds))], record)


def _lanes_of(one: Recorded, lanes: int) -> list[Recorded]:
    """Parts of the same length. Where one is cut off, its last episode is truncated."""
    if lanes == 1:
        return [one]
    length = len(one) // lanes
    parts = [one.part(slice(i * length, (i + 1) * length)) for i in range(lanes)]
    for part in parts:
        part.truncated = part.truncated.copy()
        part.truncated[-1:] |= ~part.terminated[-1:]
    return parts


def _is_minari(source: str) -> bool:
    return source.startswith(MINARI)


def _digest(found: Any) -> str:
    digest = hashlib.sha256()
    for one in found:
        fields = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
        for name, value in fields.items():
            for part, x in sorted(value.items()) if isinstance(value, dict) else [("", value)]:
                digest.update(f"{name}.{part}{x.shape}{x.dtype}".encode())
                digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


def _newest(one: Recorded, capacity: int) -> Recorded:
    """The newest episodes that fit; of a single one that does not, its newest part."""
    slots = np.cumsum(1 + one.ends[::-1].astype(np.int64))[::-1]  # what each needs with all after it
    if not len(one) or slots[0] <= capacity:
        return one
    begins = np.flatnonzero(np.concatenate([[True], one.ends[:-1]]))
    whole = begins[slots[begins] <= capacity]
    first = int(whole[0]) if len(whole) else int(np.flatnonzero(slots <= capacity)[0])
    return one.part(slice(first, None))


def _check(source: str, one: Recorded, obs: ObsSpec, horizon: int, gaps: int) -> None:
    """Refuse what would spread NaN through the networks, and what has no window to learn from.

    `gaps`: rows that ended their episode only because the next row does not follow them.
    """
    what = f"{spelled('prefill')} {source}"
    for next_, parts in (("", one.obs), ("next ", one.next_obs)):
        for name, x in parts.items():
            part = obs[name]
            if isinstance(part, Vector) and not np.isfinite(x).all():
                row, at = np.argwhere(~np.isfinite(x.reshape(len(x), -1)))[0]
                where = part.component(int(at), name)
                raise ConfigError(
                    f"{what}: the {next_}observation of transition {row} is NaN or infinite in {where}; leave it out"
                )
    if not (np.abs(one.reward) <= _LARGEST).all():
        row = int(np.argmin(np.abs(one.reward) <= _LARGEST))
        raise ConfigError(f"{what}: the reward of transition {row} is {one.reward[row]}; leave it out")
    begins = np.concatenate([[0], np.flatnonzero(one.ends)[:-1] + 1]) if len(one) else np.zeros(0, int)
    lengths = np.diff([*begins, len(one)])
    if not (one.terminated.any() or (lengths > horizon).any()):
        nothing = f"{what} has no window of {horizon} transitions to learn from"
        if gaps:
            raise ConfigError(
                f"{nothing}: after {gaps:,} of its rows the next one does not follow (its observations are not these "
                "next_observations); give the rows in the order in which they were recorded"
            )
        raise ConfigError(
            f"{nothing}: its {len(one):,} transitions are in episodes truncated sooner; record longer ones"
        )


# What environments give, as the replay stores it.


def frames_of(obs: ObsSpec, given: Any, count: int, what: str) -> Arrays:
    """Observations of an environment, arrays of [N, ...] nested as its space is, as newest frames by part."""
    found = {}
    for name, part in obs.parts:
        whole = len(obs.parts) == 1 and name == SINGLE and not (isinstance(part, Image) and isinstance(given, Mapping))
        try:
            x = given if whole else at_path(given, name)
            frames = _image_frames(part, x) if isinstance(part, Image) else _vectors(part, x, count)
        except (KeyError, ValueError, TypeError):
            raise RunFolderError(
                f"{what} has observations {_shapes_of(given)}; this environment has {described(obs)}: it must be of "
                "the same environment"
            ) from None
        found[name] = frames
    return found


def _image_frames(part: Image, x: Any) -> np.ndarray:
    images = np.asarray(x)
    if images.dtype != np.uint8 or images.shape[1:] != (part.height, part.width, part.channels):
        raise ValueError(images.shape)
    return np.ascontiguousarray(np.moveaxis(images, -1, 1))


def _vectors(part: Any, x: Any, count: int) -> np.ndarray:
    fields, hot = dict(part.fields), {path: (choices, start) for path, choices, start in part.choices}
    paths = list(fields) if fields and (isinstance(x, Mapping | tuple | list) or list(fields) == [""]) else [""]
    joined = []
    for path in paths:
        values = np.asarray(at_path(x, path) if path else x).reshape(count, -1)
        joined.append(one_hot(values, *hot[path]) if path in hot else values.astype(np.float32))
    vectors = np.concatenate(joined, axis=1)
    if vectors.shape != (count, part.size):
        raise ValueError(vectors.shape)
    return vectors


def _shapes_of(given: Any) -> str:
    if isinstance(given, Mapping):
        return ", ".join(f"{key} {_shapes_of(x)}" for key, x in given.items())
    if isinstance(given, tuple | list):
        return ", ".join(_shapes_of(x) for x in given)
    return str(np.shape(given)[1:])


def unit_actions(spaces: Spaces, given: Any, what: str) -> np.ndarray:
    """Actions in the environment's own units, [N, ...], as agents give them: in [-1, 1], or one-hot."""
    own = np.asarray(given)
    own = own.reshape(len(own), -1)
    spec = spaces.action
    expected = len(spec.choices) if isinstance(spec, DiscreteActions) else spec.dim
    if own.shape[1] != expected:
        raise RunFolderError(f"{what} has actions of {own.shape[1]} numbers; this environment's have {expected}")
    if isinstance(spec, DiscreteActions):
        try:
            return one_hot(own, spec.choices, spec.start or (0,) * len(spec.choices))
        except ValueError as error:
            raise RunFolderError(f"{what} has actions that this environment does not: {error}") from None
    assert isinstance(spec, ContinuousActions)
    low, high = np.asarray(spec.low), np.asarray(spec.high)
    unit = 2 * (own.astype(np.float64) - low) / (high - low) - 1
    inside = (np.abs(unit) <= 1 + 2 * _OUTSIDE).all(axis=1)  # false for NaN
    if not inside.all():
        row = int(np.argmin(inside))
        raise ConfigError(
            f"{what}: action {row} is {own[row].tolist()}, outside this environment's bounds {low.tolist()} to "
            f"{high.tolist()}; actions must be in its own units"
        )
    return np.clip(unit, -1, 1).astype(np.float32)


# Readers.


def _read_npz(path: Path, spaces: Spaces) -> tuple[Recorded, int]:
    """What the file has, and how many of its rows the next one does not follow though the episode has not ended."""
    what = f"{spelled('prefill')} {path}"
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except PermissionError:
        raise
    except Exception as error:  # a damaged archive may raise anything
        said = str(error) or type(error).__name__
        raise DamagedFileError(f"{what} cannot be read as an .npz file ({said}); write it with numpy.savez") from None
    given = {key: _nested(arrays, key) for key in NPZ_KEYS}
    missing = [key for key, x in given.items() if x is None]
    if missing:
        raise ConfigError(
            f"{what} has no array '{missing[0]}'; got {', '.join(arrays) or 'nothing'}; it needs "
            f"{', '.join(NPZ_KEYS)}, a row for each transition"
        )
    count = len(np.atleast_1d(_numbers(arrays, "rewards", what)))
    for name, x in arrays.items():
        if np.shape(x)[:1] != (count,):
            raise ConfigError(f"{what}: '{name}' has shape {x.shape}, expected {count} rows, as rewards have")
        if name.partition("/")[0] in NPZ_KEYS:
            _numbers(arrays, name, what)
    if not count:
        raise ConfigError(f"{what} has no transitions")
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 does not hold is infinite, which is refused
        rows = Recorded(
            frames_of(spaces.obs, given["observations"], count, what),
            unit_actions(spaces, given["actions"], what),
            _column(arrays, "rewards", count, what).astype(np.float32),
            frames_of(spaces.obs, given["next_observations"], count, what),
            _flags(arrays, "terminations", count, what),
            _flags(arrays, "truncations", count, what),
        )
        joined = _joined([rows])
    return joined, int((joined.ends & ~rows.ends)[:-1].sum())


def _numbers(arrays: Mapping[str, Any], name: str, what: str) -> np.ndarray:
    """An array of a file, if it holds numbers."""
    x = arrays.get(name)
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "biuf":
        got = f"holds {x.dtype}" if isinstance(x, np.ndarray) else "is in several parts"
        raise ConfigError(f"{what}: '{name}' {got}, expected numbers; convert it before numpy.savez")
    return x


def _column(arrays: Mapping[str, Any], name: str, count: int, what: str) -> np.ndarray:
    """An array of one number for each transition."""
    x = _numbers(arrays, name, what)
    if x.size != count:
        raise ConfigError(f"{what}: '{name}' has shape {x.shape}, expected ({count},): one number for each transition")
    return x.reshape(count)


def _flags(arrays: Mapping[str, Any], name: str, count: int, what: str) -> np.ndarray:
    """An array of False or True, which may be written as 0 and 1."""
    x = _column(arrays, name, count, what)
    wrong = ~((x == 0) | (x == 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ConfigError(f"{what}: '{name}' of transition {row} is {x[row]}, expected False or True, or 0 or 1")
    return x.astype(bool)


def _nested(arrays: Mapping[str, np.ndarray], key: str) -> Any:
    """An array, or those under `key/PATH` as one dict by path."""
    if key in arrays:
        return arrays[key]
    inner = {name.removeprefix(f"{key}/"): x for name, x in arrays.items() if name.startswith(f"{key}/")}
    return inner or None


def _read_minari(source: str, spaces: Spaces) -> Recorded:
    import minari  # pyright: ignore[reportMissingImports] - an extra

    what = f"{spelled('prefill')} {source}"
    name = source.removeprefix(MINARI)
    try:
        dataset = minari.load_dataset(name)
    except Exception as error:  # it has many ways to say that there is none
        local = list(minari.list_local_datasets())
        said = f"{type(error).__name__}: {error}" if name in local else "it is not on this machine"
        more = "" if name in local else f"; minari download {name} gets it, if there is one"
        raise RunFolderError(
            f"{what} cannot be opened ({said}); datasets here: {', '.join(local) or 'none'}{more}"
        ) from None
    episodes = []
    for episode in dataset.iterate_episodes():
        count = len(episode.rewards)
        if not count:
            continue
        seen = frames_of(spaces.obs, episode.observations, count + 1, what)
        episodes.append(
            Recorded(
                {key: x[:-1] for key, x in seen.items()},
                unit_actions(spaces, episode.actions, what),
                np.asarray(episode.rewards, np.float32).reshape(count),
                {key: x[1:] for key, x in seen.items()},
                np.asarray(episode.terminations).astype(bool),
                np.asarray(episode.truncations).astype(bool),
            )
        )
        episodes[-1].truncated[-1] |= not episodes[-1].terminated[-1]
    if not episodes:
        raise ConfigError(f"{what} has no transitions")
    return _joined(episodes)


def _read_run(path: Path, spaces: Spaces, seeds: Sequence[int]) -> tuple[dict[int, int], list[Recorded]]:
    """The replays of a run's newest whole checkpoint; those of the same seeds, or of its best for all."""
    what = f"{spelled('prefill')} {path}"
    if not is_run(path):
        raise RunFolderError(f"{what} is not a run: it has no run.json; give a run's folder, or an .npz file")
    info = read_run_json(path, "seeds")
    policy = policy_record(path)
    there = spaces_from_json(policy["spaces"])
    if there != spaces and there.sizes() != spaces.sizes():
        raise RunFolderError(
            f"{what} has observations {described(there.obs)} and actions {described(there.action)}; this "
            f"environment's are {described(spaces.obs)} and {described(spaces.action)}"
        )
    if there.action != spaces.action:
        raise RunFolderError(
            f"{what} has actions in other bounds than this environment: {there.action}, here {spaces.action}"
        )
    checkpoints = Checkpoints(path, info["seeds"])
    of_seed = seeds_of_source(seeds, info["seeds"], policy["best_seed"])
    config = config_from_json(info["settings"].get("config"))
    for step in reversed(checkpoints.steps()):
        try:
            stored = checkpoints.read(step)
            spec = LearnerSpec(config, spaces.sizes(), stored.capacity, lanes=stored.lanes)
            read = {other: _of_replay(*load_replay(stored, spec, other)) for other in dict.fromkeys(of_seed.values())}
        except DamagedFileError:
            continue
        if not all(map(len, read.values())):
            break
        return of_seed, [read[of_seed[seed]] for seed in seeds] if len(read) > 1 else list(read.values())
    raise RunFolderError(f"{what} has no whole checkpoint with transitions; resume it, or check it: dr-q doctor {path}")


def _of_replay(replay: rp.Replay, frames: Arrays) -> Recorded:
    """The transitions of a replay, oldest first.

    An episode whose beginning was overwritten lacks frames of its first stacks: it is left out where they matter.
    """
    lanes = replay.storage.spec.lanes
    parts = [part for part in (_of_lane(replay, frames, lane) for lane in range(lanes)) if len(part)]
    return _joined(parts) if parts else _of_lane(replay, frames, 0)


def _of_lane(replay: rp.Replay, frames: Arrays, lane: int) -> Recorded:
    """The transitions of one lane of a replay, oldest first."""
    storage = replay.storage
    lanes = storage.spec.lanes
    size, cursor = (int(np.atleast_1d(np.asarray(x))[lane]) for x in (storage.size, storage.cursor))
    capacity = storage.spec.capacity // lanes
    slots = lane + lanes * ((np.arange(size) + (cursor // lanes if size == capacity else 0)) % capacity)
    is_transition, frames_before = np.asarray(storage.is_transition)[slots], np.asarray(storage.frames_before)[slots]
    if storage.spec.stack > 1 and size == capacity:
        first = np.flatnonzero((frames_before == 0) & is_transition)
        keep = int(first[0]) if len(first) else len(slots)
        slots, is_transition = slots[keep:], is_transition[keep:]
    # `slots` are those of one stream of experience, oldest first, and a transition's next observation is that of the
    # next slot: the newest has none yet.
    last = np.concatenate([~is_transition[1:], [False]])  # a final observation follows
    usable = is_transition.copy()
    if len(usable):
        usable[-1] = False
    here = np.flatnonzero(usable)
    terminated = last[here] & (np.asarray(storage.not_done)[slots[here]] == 0)
    return Recorded(
        {name: x[slots[here]] for name, x in frames.items()},
        np.asarray(storage.action)[slots[here]],
        np.asarray(storage.reward)[slots[here]],
        {name: x[slots[here + 1]] for name, x in frames.items()},
        terminated,
        last[here] & ~terminated,
    )


def _joined(episodes: list[Recorded]) -> Recorded:
    """All in one. The last transition ends its episode: the run's first one does not follow it."""

    def join(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {name: np.concatenate([x[name] for x in values]) for name in values[0]}
        return np.concatenate(values)

    names = [field.name for field in dataclasses.fields(Recorded)]
    joined = Recorded(**{name: join([getattr(one, name) for one in episodes]) for name in names})
    # A slot's next observation is the next slot's: rows that do not follow each other are episodes of their own.
    follows = np.ones(len(joined) - 1, bool)
    for name, x in joined.obs.items():
        follows &= (joined.next_obs[name][:-1] == x[1:]).reshape(len(follows), -1).all(axis=1)
    ends = np.concatenate([~follows, [True]])
    joined.truncated |= ends & ~joined.terminated
    return joined
