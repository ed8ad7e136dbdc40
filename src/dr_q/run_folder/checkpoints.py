"""Checkpoints: everything a run needs to continue as if it had never stopped (D6), as arrays by name.

    checkpoints/<agent_steps>/checkpoint.json      where the run is, and which chunks of the replay it has
                              agents.safetensors   all seeds' networks, targets and optimisers
                              replay.safetensors   priorities, validity, sums and counters
                              episodes.safetensors the step under way: what was acted on and what came of it, and
                                                   actions since the start of each environment's open episode
                              best.safetensors     all seeds' best policies over time, if they are kept
    checkpoints/replay/seed<k>/*.safetensors       the transitions, in chunks shared by all checkpoints that have them

A chunk's name says which content it has, so one that did not change since an earlier checkpoint is not written again.
checkpoint.json has the SHA-256 of every file that belongs to the checkpoint, chunks too, and its own. Whoever reads a
file compares it first.
"""

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dr_q.kit import DamagedFileError, check_is_file, sha256_of, sync_folder, write_text
from dr_q.run_folder.arrays import read_arrays, read_belongs_to, write_arrays
from dr_q.run_folder.formats import (
    CHECKSUMS_SINCE,
    FORMAT,
    check_format,
    upgrade_chunk,
    upgrade_index,
    upgrade_replay,
    upgrade_step,
    upgrade_weights,
)
from dr_q.run_folder.json_files import Fields, read_json

Arrays = dict[str, np.ndarray]
_INDEX, _AGENTS, _REPLAY, _EPISODES = (
    "checkpoint.json",
    "agents.safetensors",
    "replay.safetensors",
    "episodes.safetensors",
)
_BEST = "best.safetensors"
_FILES, _OWN = "sha256", "index_sha256"
_CHUNK_NAME = re.compile(r"(\d{8,18})-(-?\d{1,18})-[0-9a-f]{1,16}(-f\d{1,4})?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_THREADS = 8
"""Most threads that compute checksums."""
_UNREADABLE = (errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
"""What reading a damaged file or disk gives."""


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
    """The open episode of each seed's environments, one seed after the other: its number and its actions so far."""
    encoder_metrics: dict[str, list[float]] | None
    """Of the last encoder updates, for the log."""
    evaluations: str | None = None
    """What evals.csv has so far."""
    settings: dict[str, Any] | None = None
    """Of the run, as run.json has them."""
    loop: dict[str, Any] | None = None
    """What the loop keeps, as JSON: states of callbacks, training episodes, scores of the best policies."""
    best: Arrays | None = None
    """All seeds' best policies over time."""


class _Index(NamedTuple):
    """What checkpoint.json says."""

    version: int
    """Its format."""
    agent_steps: int
    seeds: list[int]
    capacity: int
    lanes: int
    """Environments of each seed."""
    episodes: list[int]
    chunks: list[list[str]]
    encoder_metrics: dict[str, list[float]] | None
    evaluations: str | None
    settings: dict[str, Any]
    loop: dict[str, Any]
    digests: dict[str, str]
    """SHA-256 of files, by their path from the checkpoint's folder or, of chunks, from that of all checkpoints."""


class StoredCheckpoint:
    """A checkpoint in a run's folder, read part by part; older formats are brought up to date.

    A part is compared with its checksum before it is read. DamagedFileError if it differs.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._index = _read_index(folder)
        self.agent_steps = self._index.agent_steps
        self.seeds = self._index.seeds
        self.capacity = self._index.capacity
        """Slots of each replay."""
        self.lanes = self._index.lanes
        """Environments of each seed."""
        self.encoder_metrics = self._index.encoder_metrics
        self.evaluations = self._index.evaluations
        """What evals.csv had; None where the checkpoint's version did not keep it."""
        self.settings = self._index.settings
        """The run's, as run.json had them; empty where the checkpoint's version did not keep them."""
        self.loop = self._index.loop
        """What the loop kept; empty where the checkpoint's version did not."""
        self.has_checksums = self._index.version >= CHECKSUMS_SINCE
        self._verified: set[Path] = set()

    def agents(self) -> Arrays:
        """All seeds' networks, targets and optimisers."""
        return upgrade_weights(self._read(_AGENTS), self._index.version)

    def replay(self) -> Arrays:
        """All seeds' replays but for what is in chunks; filled rows only."""
        return upgrade_replay(self._read(_REPLAY), self._index.version)

    def best(self) -> Arrays:
        """All seeds' best policies over time; empty if there are none."""
        return upgrade_weights(self._read(_BEST), self._index.version) if _BEST in self._index.digests else {}

    def chunks(self, seed: int, replay: Arrays) -> Iterator[tuple[int, Arrays]]:
        """First slot and arrays of each chunk of a seed; `replay` is what `replay()` gave."""
        row = self.seeds.index(seed)
        for name in self._index.chunks[row]:
            start = int(name.split("-")[0])
            arrays = self._read(_chunk_file(seed, name))
            yield start, upgrade_chunk(arrays, replay, row, start, self._index.version)

    def step(self) -> tuple[Arrays, np.ndarray, list[tuple[int, np.ndarray]]]:
        """The pending transitions, the packet of their outcome, and the open episode of each seed's environments."""
        stored = upgrade_step(self._read(_EPISODES), self._index.version)
        count = len(self._index.episodes)
        missing = [n for n in ("packet", *(f"actions{i}" for i in range(count))) if n not in stored]
        if missing:
            raise DamagedFileError(f"{self.folder / _EPISODES} has no array '{missing[0]}'")
        episodes = [(number, stored.pop(f"actions{i}")) for i, number in enumerate(self._index.episodes)]
        return stored, stored.pop("packet"), episodes

    @property
    def chunk_names(self) -> dict[int, list[str]]:
        """Of each seed."""
        return dict(zip(self.seeds, self._index.chunks, strict=True))

    @property
    def chunk_digests(self) -> dict[tuple[int, str], str]:
        """SHA-256 of each chunk, by seed and name; empty where the checkpoint's version had none."""
        if not self.has_checksums:
            return {}
        digests = self._index.digests
        return {
            (seed, name): digests[_chunk_file(seed, name)] for seed, mine in self.chunk_names.items() for name in mine
        }

    @property
    def files(self) -> list[str]:
        """What belongs to it besides checkpoint.json: names of files, and paths of chunks from the parent folder."""
        return [*_belonging(self.seeds, self._index.chunks), *({_BEST} & set(self._index.digests))]

    def damages(self) -> list[str]:
        """What is wrong with the checkpoint's files, several read at a time; empty if they are as they were written."""
        with concurrent.futures.ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
            return [damage for damage in threads.map(self._damage, self.files) if damage]

    def _damage(self, name: str) -> str:
        try:
            self._verify(name)
            if not self.has_checksums:
                read_arrays(self._path(name))
        except DamagedFileError as error:
            return str(error)
        return ""

    def _path(self, name: str) -> Path:
        return (self.folder.parent if "/" in name else self.folder) / name

    def _read(self, name: str) -> Arrays:
        self._verify(name)
        return read_arrays(self._path(name))

    def _verify(self, name: str) -> None:
        """Compare a file with its checksum and with what it says that it belongs to."""
        path = self._path(name)
        if path in self._verified or not self.has_checksums:
            return
        check_is_file(path)
        try:
            with path.open("rb") as file:
                found = sha256_of(file)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            raise DamagedFileError(f"{path} cannot be read ({error.strerror})") from None
        said, expected = read_belongs_to(path), self._belongs_to(name)
        for field, value in expected.items():
            if said.get(field) != value:
                raise DamagedFileError(
                    f"{path} belongs to another checkpoint: its {field} is {said.get(field)!r}, expected {value!r}"
                )
        if found != self._index.digests[name]:
            raise DamagedFileError(f"{path}: checksum differs")
        self._verified.add(path)

    def _belongs_to(self, name: str) -> dict[str, Any]:
        if "/" not in name:
            return _of_checkpoint(self.agent_steps, self.seeds)
        _, seed, file = name.split("/")
        return _of_chunk(int(seed.removeprefix("seed")), file.removesuffix(".safetensors"))


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path, seeds: list[int], keep: int = 1):
        self.folder = run / "checkpoints"
        self._seeds = seeds
        self._keep = keep
        self._digests: dict[tuple[int, str], str] = {}
        """Of the chunks in the folder that this object wrote, or that a checkpoint it read refers to."""

    def steps(self) -> list[int]:
        """Agent steps of the checkpoints that are there, oldest first."""
        return checkpoint_steps(self.folder.parent)

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; it is there whole or not at all. Then drop the oldest beyond what is kept.

        Raises:
            OSError: If it cannot be written, for lack of space for instance. Nothing of it is left then.
        """
        final = self.folder / str(checkpoint.agent_steps)
        part = self.folder / f".part-{checkpoint.agent_steps}"
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir(parents=True)
            self._write_parts(checkpoint, part)
            part.replace(final)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                self.tidy()
            raise
        sync_folder(self.folder)
        with contextlib.suppress(OSError):  # what cannot be removed now is removed with the next
            for old in self.steps()[: -self._keep]:
                self._remove(old)
            self.tidy()
        return final

    def _write_parts(self, checkpoint: Checkpoint, part: Path) -> None:
        digests: dict[str, str] = {}
        for seed, chunks in zip(self._seeds, checkpoint.chunks, strict=True):
            digests |= self._write_chunks(seed, chunks)
        actions = {f"actions{i}": actions for i, (_, actions) in enumerate(checkpoint.episodes)}
        episodes = {**checkpoint.pending, "packet": checkpoint.packet, **actions}
        own, lanes = _of_checkpoint(checkpoint.agent_steps, self._seeds), len(checkpoint.episodes) // len(self._seeds)
        files = {_AGENTS: checkpoint.agents, _REPLAY: checkpoint.replay, _EPISODES: episodes}
        for name, arrays in {**files, **({_BEST: checkpoint.best} if checkpoint.best else {})}.items():
            digests[name] = write_arrays(part / name, arrays, own)
        record = {
            "format": FORMAT,
            "agent_steps": checkpoint.agent_steps,
            "seeds": self._seeds,
            "capacity": checkpoint.capacity,
            **({"lanes": lanes} if lanes > 1 else {}),
            "episodes": [number for number, _ in checkpoint.episodes],
            "chunks": [[chunk.name for chunk in chunks] for chunks in checkpoint.chunks],
            "encoder_metrics": checkpoint.encoder_metrics,
            "evaluations": checkpoint.evaluations,
            "settings": checkpoint.settings,
            "loop": checkpoint.loop,
            _FILES: digests,
        }
        sync_folder(self.folder / "replay")
        write_text(part / _INDEX, json.dumps({**record, _OWN: _own_digest(record)}, indent=1) + "\n")

    def set_aside(self, agent_steps: int) -> Path:
        """Rename a damaged checkpoint, so that none takes it for a good one; where it is now."""
        place, number = self.folder / f"damaged-{agent_steps}", 2
        while place.exists():
            place, number = self.folder / f"damaged-{agent_steps}-{number}", number + 1
        (self.folder / str(agent_steps)).replace(place)
        sync_folder(self.folder)
        return place

    def read(self, agent_steps: int) -> StoredCheckpoint:
        """The checkpoint of that step."""
        return StoredCheckpoint(self.folder / str(agent_steps))

    def tidy(self) -> None:
        """Remove what no checkpoint refers to: unfinished ones, half-removed ones, and chunks left over."""
        for kind in (".part-*", ".old-*"):
            for part in self.folder.glob(kind):
                shutil.rmtree(part)
        used: dict[int, set[str]] = {seed: set() for seed in self._seeds}
        for step in self.steps():
            try:
                stored = self.read(step)
            except DamagedFileError:
                return  # nobody knows what it refers to: leave all
            self._digests |= stored.chunk_digests
            for seed, mine in stored.chunk_names.items():
                used.setdefault(seed, set()).update(mine)
        for seed in self._seeds:
            folder = _chunk_folder(self.folder, seed)
            for file in folder.iterdir() if folder.is_dir() else ():
                if file.name.removesuffix(".safetensors") not in used[seed]:
                    file.unlink()
        self._digests = {(seed, name): digest for (seed, name), digest in self._digests.items() if name in used[seed]}

    def _remove(self, agent_steps: int) -> None:
        """Remove a checkpoint; a kill meanwhile must not leave half of one under its name."""
        leaving = self.folder / f".old-{agent_steps}"
        shutil.rmtree(leaving, ignore_errors=True)
        (self.folder / str(agent_steps)).replace(leaving)
        shutil.rmtree(leaving)

    def _write_chunks(self, seed: int, chunks: list[Chunk]) -> dict[str, str]:
        """Write those that are not there yet; the checksums of all."""
        folder = _chunk_folder(self.folder, seed)
        folder.mkdir(parents=True, exist_ok=True)
        for chunk in chunks:
            file, known = self.folder / _chunk_file(seed, chunk.name), (seed, chunk.name)
            if known not in self._digests or not file.exists():
                self._digests[known] = write_arrays(file, chunk.read(), _of_chunk(seed, chunk.name))
        sync_folder(folder)
        return {_chunk_file(seed, chunk.name): self._digests[seed, chunk.name] for chunk in chunks}


def checkpoint_steps(run: Path) -> list[int]:
    """Agent steps of a run's checkpoints, oldest first."""
    folder = run / "checkpoints"
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(name) for name in names if re.fullmatch(r"0|[1-9][0-9]{0,17}", name))


def _chunk_folder(checkpoints: Path, seed: int) -> Path:
    return checkpoints / "replay" / f"seed{seed}"


def _chunk_file(seed: int, name: str) -> str:
    """From the folder of all checkpoints."""
    return f"replay/seed{seed}/{name}.safetensors"


def _belonging(seeds: list[int], chunks: list[list[str]]) -> Iterator[str]:
    """The files of a checkpoint."""
    yield from (_AGENTS, _REPLAY, _EPISODES)
    for seed, mine in zip(seeds, chunks, strict=True):
        yield from (_chunk_file(seed, name) for name in mine)


def _of_checkpoint(agent_steps: int, seeds: list[int]) -> dict[str, Any]:
    """What a file of a checkpoint says of itself."""
    return {"format": FORMAT, "agent_steps": agent_steps, "seeds": seeds}


def _of_chunk(seed: int, name: str) -> dict[str, Any]:
    """What a chunk says of itself. Checkpoints share it: its step is that of its newest transition, in its name."""
    return {"format": FORMAT, "seed": seed, "chunk": name}


def _own_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of what checkpoint.json says besides."""
    rest = {name: value for name, value in record.items() if name != _OWN}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read_index(folder: Path) -> _Index:
    """What checkpoint.json says, as of this format."""
    path = folder / _INDEX
    try:
        record = read_json(path)
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        record = {}
    if not record:
        raise DamagedFileError(f"{path} cannot be read")
    if _OWN in record and record[_OWN] != _own_digest(record):
        raise DamagedFileError(f"{path}: checksum differs")
    version = check_format(record, path)  # first: a newer one may have other fields
    fields = Fields(path, upgrade_index(record, version))
    agent_steps, seeds = fields.whole("agent_steps"), fields.wholes("seeds")
    if str(agent_steps) != folder.name.removeprefix("damaged-"):
        raise fields.wrong("agent_steps", f"that of its folder, {folder.name}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise fields.wrong("seeds", "different seeds")
    capacity = fields.whole("capacity", least=1)
    lanes = fields.whole("lanes", least=1) if "lanes" in fields.values else 1
    index = _Index(
        version,
        agent_steps,
        seeds,
        capacity,
        lanes,
        fields.wholes("episodes", lanes * len(seeds)),
        [_chunk_names(mine, capacity, fields) for mine in fields.list("chunks", len(seeds))],
        _encoder_metrics(fields, len(seeds)),
        None if fields.values.get("evaluations") is None else fields.text("evaluations"),
        {} if fields.values.get("settings") is None else fields.object("settings"),
        {} if fields.values.get("loop") is None else fields.object("loop"),
        _digests(fields) if version >= CHECKSUMS_SINCE else {},
    )
    if version >= CHECKSUMS_SINCE:
        missing = [name for name in _belonging(seeds, index.chunks) if name not in index.digests]
        if missing or _OWN not in record:
            raise fields.damaged(f"it has no checksum of {missing[0] if missing else 'itself'}")
    return index


def _chunk_names(names: Any, capacity: int, fields: Fields) -> list[str]:
    """The names of a seed's chunks; they become paths, so nothing else may be in them."""
    if not isinstance(names, list):
        raise fields.wrong("chunks", "a list of names for each seed")
    for name in names:
        match = _CHUNK_NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None or int(match[1]) >= capacity:
            raise fields.damaged(f"chunks must be names like 00000000-127-3b2c1d0e-f{FORMAT}, got {str(name)[:60]!r}")
    return names


def _encoder_metrics(fields: Fields, seeds: int) -> dict[str, list[float]] | None:
    if fields.any("encoder_metrics") is None:
        return None
    found = fields.object("encoder_metrics")
    inner = fields.inner("encoder_metrics")
    for name in found:
        numbers = inner.list(name, seeds)
        if not all(type(x) is float or (type(x) is int and abs(x) < 2**63) for x in numbers):  # may be NaN
            raise inner.wrong(name, "numbers")
    return {name: [float(x) for x in numbers] for name, numbers in found.items()}


def _digests(fields: Fields) -> dict[str, str]:
    found = fields.object(_FILES)
    for name, digest in found.items():
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise fields.inner(_FILES).wrong(name, "64 hexadecimal digits")
    return found
