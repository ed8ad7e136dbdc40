"""Random faults against runs that are resumed until they end; the results must be those of an unbroken run.

    python -m tests.faults.soak --faults 300 --out benchmarks/results/soak.json

A round is a run of 400 steps of two seeds with tiny networks, whose chunks of the replay are small enough to be shared
by checkpoints. Each attempt at it begins with damage to a file of the run (or none) and meets a fault on the way (or
none). Every attempt is a process, forked from one that has loaded the libraries.

A fault counts once it took place: the disk failed or the kill happened (`shim.c` counts), the environment reached its
fault (it writes a file), the signal was sent to a process that did not finish, damaged files were read. Then its exit
code must be one that belongs to it. An attempt whose fault did not take place must finish.

After each attempt: no traceback, no hang, no process left behind, errors in one line, the command to resume after a
failure in mid-run, a checkpoint after a first signal. An environment that hangs must end the attempt within
`--env-timeout` and 10 s. The resume must use the newest checkpoint without damage (`Expected`) and name what is
damaged in those it passed over. Where no checkpoint is left, or run.json is damaged, the attempt must end with one line
that names it; then the run is taken from a backup. Damage that was not read because the attempt ended before that stays
for the next one.

A run has ended when it says so and its best policies have been measured; then all of its files are compared. Damage to
metrics.csv is not noticed in its numbers, so a run that had it is compared without that file. The policies of the last
evaluation are written by evaluations, so they are damaged only while one is still to come.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import mmap
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import damages, disk
from tests.faults.damages import index_of, steps_of
from tests.sweep.processes import in_session
from tests.training import tiny

STEPS, EVERY = 400, 20
SEEDS = 2
TIMEOUT_S, REFERENCE_TIMEOUT_S = 90, 900
"""An attempt may take that long, or ten times as long as an unbroken run; the first run compiles."""
SETTINGS: dict[str, Any] = {
    **tiny.SIZES,
    "seeds": SEEDS,
    "steps": STEPS,
    "checkpoint_every": EVERY,
    "keep_checkpoints": 3,
    "eval_every": 40,
    "eval_episodes": 1,
}
ENV_TIMEOUT_S = 8
GRACE_S = 10
"""Seconds after the timeout of environments, or after the end of an attempt, in which all of it must have ended."""
ARGUMENTS = ["train", "tests.faults.envs:drq-watched-v0"]
ARGUMENTS += [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
KILLED, DONE, FAILED, USAGE, INTERRUPTED, TERMINATED = -9, 0, 1, 2, 130, 143
NO_END = -1000
LAST_FIFTH = 0.8
"""Faults come in the part of a run before it, so that they take place."""


class Whole(NamedTuple):
    """What an unbroken run takes; faults are placed by it."""

    seconds: float = 5.0
    start_s: float = 2.0
    """Of them before the first step."""
    changes: int = 600
    """Of the disk."""
    calls: int = 1_000
    """Steps of all environments, where they are in one process."""


class Attempt:
    """What one process is to meet."""

    def __init__(self, run: Path, rng: random.Random, whole: Whole | None = None, step: int = 0):
        self.run, self.rng, self.whole = run, rng, whole or Whole()
        self.left = 1 - step / STEPS
        """Part of the run that is still to come."""
        self.environment: Mapping[int, Callable[[], object]] = {}
        self.simulators = ""
        """Faults of environments by name, as `envs.faults_of` reads them."""
        self.in_process = True
        """Otherwise each seed is simulated by a process of its own."""
        self.hangs = self.fills_disk = False
        self.kill_when_it_hangs = False
        self.locked = False
        """Another process trains in the folder."""
        self.kill_at = self.fail_at = self.torn = 0
        self.errno = 28
        self.after: Sequence[tuple[float, int]] = ()
        """Signals from outside: seconds, number."""
        self.codes = {DONE}
        """Exit codes if it took place."""
        self.early: set[int] = set()
        """And those if it did before the loop began."""

    @property
    def happened(self) -> Path:
        """Is there once an environment has reached its fault; says when."""
        return self.run.parent / "happened"

    def _in(self, count: float) -> int:
        return self.rng.randint(1, max(1, int(LAST_FIFTH * self.left * count)))

    def call(self) -> int:
        """A step of an environment, somewhere in what is left of the run."""
        return self._in(self.whole.calls if self.in_process else STEPS)

    def change(self) -> int:
        """A change of the disk."""
        return self._in(self.whole.changes)

    def moment(self) -> float:
        """Seconds after the beginning."""
        steps_s = self.left * (self.whole.seconds - self.whole.start_s)
        return self.rng.uniform(0.1, max(0.2, LAST_FIFTH * (self.whole.start_s + steps_s)))

    def execution(self) -> list[str]:
        """Options of this attempt that change no result."""
        timeout = ["--env-timeout", str(ENV_TIMEOUT_S)] if self.hangs else []
        return ["--in-process", str(self.in_process), "--log-every", str(EVERY), *timeout]


# On the way


def kill_at_a_time(a: Attempt) -> None:
    a.after, a.codes = [(a.moment(), signal.SIGKILL)], {KILLED}


def hang_up(a: Attempt) -> None:
    a.after, a.codes = [(a.moment(), signal.SIGHUP)], {-signal.SIGHUP}


def kill_at_a_change(a: Attempt) -> None:
    a.kill_at, a.codes = a.change(), {KILLED}


def kill_in_half_of_a_write(a: Attempt) -> None:
    a.kill_at, a.torn, a.codes = a.change(), 1, {KILLED}


def _fails_from_a_change(number: int) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        # Where only TensorBoard had something left to write, the run ends well.
        a.fail_at, a.errno, a.codes, a.early = a.change(), number, {DONE, FAILED}, {USAGE}

    return arm


def full_for_a_moment(a: Attempt) -> None:
    from tests.faults import envs

    begin, file = a.call(), a.run.parent / "full"
    a.environment = {begin: envs.fills(file), begin + a.rng.randint(20, 150): envs.empties(file)}
    a.fills_disk, a.codes = True, {DONE, FAILED}


def full_and_terminated(a: Attempt) -> None:
    from tests.faults import envs

    begin, file = a.call(), a.run.parent / "full"
    a.environment = {begin: envs.fills(file), begin + 5: envs.signals(signal.SIGTERM)}
    a.fills_disk, a.codes, a.early = True, {FAILED}, {-signal.SIGTERM}


def _signal(number: int, code: int) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        from tests.faults import envs

        a.environment = {a.call(): envs.once(envs.signals(number), a.happened)}
        a.codes, a.early = {code}, {-number}

    return arm


def terminate_at_a_time(a: Attempt) -> None:
    a.after, a.codes = [(a.moment(), signal.SIGTERM)], {TERMINATED}
    a.early = {-signal.SIGTERM}  # before the run listens, Python ends in its own way


def terminate_twice(a: Attempt) -> None:
    from tests.faults import envs

    a.environment = {a.call(): envs.once(envs.signals_twice(), a.happened)}
    a.codes, a.early = {INTERRUPTED, TERMINATED}, {-signal.SIGTERM}


def _environment(what: str, *, in_process: bool = True, hangs: bool = False) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        a.in_process, a.hangs = in_process, hangs
        a.simulators, a.codes, a.early = f"{a.call()}={what}", {FAILED}, {USAGE}

    return arm


def killed_while_a_simulator_hangs(a: Attempt) -> None:
    a.in_process, a.kill_when_it_hangs = False, True
    a.simulators, a.codes = f"{a.call()}=computes", {KILLED}


def _with_simulators(fault: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        a.in_process = False
        fault(a)

    return arm


def another_process_trains(a: Attempt) -> None:
    a.locked, a.codes = True, {USAGE}


ON_THE_WAY: dict[str, Callable[[Attempt], None]] = {
    "SIGKILL at a random time": kill_at_a_time,
    "SIGHUP at a random time": hang_up,
    "SIGKILL at a change of the disk": kill_at_a_change,
    "SIGKILL in half of a write": kill_in_half_of_a_write,
    "full disk (ENOSPC)": _fails_from_a_change(28),
    "broken disk (EIO)": _fails_from_a_change(5),
    "read-only disk (EROFS)": _fails_from_a_change(30),
    "quota exceeded (EDQUOT)": _fails_from_a_change(122),
    "no permission (EACCES)": _fails_from_a_change(13),
    "disk full for a moment": full_for_a_moment,
    "disk full, then SIGTERM": full_and_terminated,
    "SIGTERM in a step": _signal(signal.SIGTERM, TERMINATED),
    "SIGINT in a step": _signal(signal.SIGINT, INTERRUPTED),
    "SIGTERM at a random time": terminate_at_a_time,
    "SIGTERM twice": terminate_twice,
    "too many open files (EMFILE)": _fails_from_a_change(24),
    "stale file handle (ESTALE)": _fails_from_a_change(116),
    "another process trains in the folder": another_process_trains,
    "environment raises": _environment("raises"),
    "environment ends the process": _environment("dies"),
    "environment hangs": _environment("hangs", hangs=True),
    "environment hangs and catches everything": _environment("hangs stubbornly", hangs=True),
    "environment gives NaN": _environment("nan"),
    "environment gives an infinite reward": _environment("infinite"),
    "environment gives another size": _environment("another size"),
    "environment gives four values": _environment("four values"),
    "simulator raises": _environment("raises", in_process=False),
    "simulator ends": _environment("dies", in_process=False),
    "simulator is killed": _environment("is killed", in_process=False),
    "simulator is stopped (SIGSTOP)": _environment("is stopped", in_process=False, hangs=True),
    "simulator hangs": _environment("hangs", in_process=False, hangs=True),
    "simulator computes for ever": _environment("computes", in_process=False, hangs=True),
    "SIGKILL while a simulator hangs": killed_while_a_simulator_hangs,
    "SIGKILL at a random time, with simulators": _with_simulators(kill_at_a_time),
    "SIGTERM at a random time, with simulators": _with_simulators(terminate_at_a_time),
}
IN_STEPS = ("environment", "simulator", "in a step", "twice", "moment", "then SIGTERM")
"""Words of faults that need steps of environments to take place in."""


# What must become of damage


class Expected(NamedTuple):
    """What a resume must do about a damaged file."""

    kind: str
    file: Path
    """From the run's folder."""
    step: int | None
    """Of the checkpoint to resume from; None: there is none, it must stop."""
    passed_over: list[int]
    """Checkpoints that must be renamed, with a line that names the file."""
    must_stop: bool
    may_stop: bool
    codes: set[int]
    """If it stops."""
    restored: bool | None
    """Whether it must say that evals.csv is restored from the checkpoint; None: nothing to say."""
    names: tuple[str, ...]
    """One of them is in the line with which it stops."""


def expected(kind: str, file: Path, before: Path, run: Path) -> Expected:
    """From the run as it was before the damage, and as it is now.

    Args:
        kind: Of the damage.
        file: The damaged file, from the run's folder.
        before: A copy of the run from before the damage.
        run: Its folder.
    """
    steps = steps_of(before)
    chunks = {step: {chunk.relative_to(before) for chunk in damages.chunks_of(before, step)} for step in steps}
    having = {step for step in steps if Path("checkpoints") / str(step) in file.parents or file in chunks[step]}
    whole = [step for step in steps if step not in having]
    must, may, codes, names = not whole, False, {FAILED}, (file.name,)
    if file.name == "run.json":
        must, may, codes = _of_run_json(before / file, run / file)
        names += (str(run), *_new_words(before / file, run / file))  # it may look like another task or setting
    elif file.name == "metrics.csv":
        may = kind.startswith("flipped")  # a line of it may not be a number any more
    restored = None
    if file.name == "evals.csv":
        restored = not _content(run / file).startswith(index_of(before, steps[-1])["evaluations"].encode())
    step = whole[-1] if whole else None
    passed = [number for number in steps if step is not None and number > step]
    return Expected(kind, file, step, passed, must, may or must, codes, restored, names)


def _of_run_json(before: Path, after: Path) -> tuple[bool, bool, set[int]]:
    """Whether the attempt must stop, whether it may, and its exit codes then."""
    if not after.exists():
        return True, True, {USAGE}
    try:
        same = json.loads(after.read_text()) == json.loads(before.read_text())
    except ValueError:
        return True, True, {FAILED}
    # A bit of a date or of a version changes nothing; one of a name makes it another task.
    return False, not same, {FAILED, USAGE}


def _new_words(before: Path, after: Path) -> list[str]:
    """Names and values in a JSON file that it did not have before."""

    def words(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {word for inner in value.values() for word in words(inner)}
        return {word for inner in value for word in words(inner)} if isinstance(value, list) else {str(value)}

    try:
        return sorted(words(json.loads(after.read_text())) - words(json.loads(before.read_text())) - {""})
    except (OSError, ValueError):
        return []


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


# Attempts

COUNTS = (ctypes.c_long * 3).from_buffer(mmap.mmap(-1, 3 * ctypes.sizeof(ctypes.c_long)))
"""Shared with the attempt: changes of the disk, faults of it that took place, steps of environments."""


class Ended(NamedTuple):
    code: int
    seconds: float
    out: str = ""
    err: str = ""
    left: int = 0
    """Processes that outlived it."""
    hung_s: float = 0.0
    """Seconds from where an environment began to hang."""
    signalled: bool = False
    """Whether a signal was sent to it from outside."""
    changes: int = 0
    disk_faults: int = 0
    calls: int = 0
    reached: bool = False
    """Whether an environment reached its fault."""
    cpu_s: float = 0.0

    @property
    def began(self) -> bool:
        """Whether the loop did."""
        return re.search(r"^metrics: ", self.out, re.MULTILINE) is not None

    @property
    def used(self) -> int | None:
        """The step of the checkpoint that it resumed from."""
        found = re.search(r"^resumed at step ([\d,]+)$", self.out, re.MULTILINE)
        return int(found[1].replace(",", "")) if found else None

    @property
    def measured(self) -> bool:
        """Whether the best policies were, which is the last thing that a run does."""
        return self.out.count("best policy of seed ") == SEEDS


def took_place(a: Attempt, ended: Ended) -> bool:
    """Whether the attempt met its fault."""
    if a.locked:
        return "is being trained by another process" in ended.err
    if a.after:
        return ended.signalled and ended.code != DONE
    return ended.disk_faults > 0 if a.kill_at or a.fail_at or a.fills_disk else ended.reached


def attempt(arguments: list[str], a: Attempt, limit: float) -> Ended:
    """Run the command in a fork of this process, with its faults."""
    full = a.run.parent / "full"
    for file in (full, a.happened):
        file.unlink(missing_ok=True)
    COUNTS[:] = [0, 0, 0]
    with _lock(a.run) if a.locked else contextlib.nullcontext():
        ended = _attempt([*arguments, *a.execution()], a, limit)
    full.unlink(missing_ok=True)
    return ended


def _lock(run: Path) -> contextlib.AbstractContextManager[object]:
    from dr_q.run_folder import lock_run_folder

    return lock_run_folder(run)


def _attempt(arguments: list[str], a: Attempt, limit: float) -> Ended:
    out, err = (a.run.parent / name for name in ("out", "err"))
    begin = time.monotonic()
    child = os.fork()
    if not child:
        _be_the_command(arguments, a, out, err)
    pending, signalled = sorted(a.after), False
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        seconds = time.monotonic() - begin
        if done or seconds > limit:
            break
        if pending and seconds >= pending[0][0]:
            os.kill(child, pending.pop(0)[1])
            signalled = True
        if a.kill_when_it_hangs and a.happened.exists():
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    if not done:
        os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    reached = a.happened.exists()
    hung_s = time.time() - float(a.happened.read_text()) if a.hangs and reached else 0.0
    left = _end_session(child)
    code = os.waitstatus_to_exitcode(status) if done else NO_END
    out, err = (file.read_text(errors="replace") for file in (out, err))
    cpu_s = used.ru_utime + used.ru_stime
    changes, disk_faults, calls = COUNTS[0], COUNTS[1], COUNTS[2]
    return Ended(code, seconds, out, err, left, hung_s, signalled, changes, disk_faults, calls, reached, cpu_s)


def _end_session(session: int) -> int:
    """How many processes of an attempt are there after the time that they have; they are ended."""
    until = time.monotonic() + GRACE_S
    while (left := in_session(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _be_the_command(arguments: list[str], a: Attempt, out: Path, err: Path) -> None:
    """In the fork; it ends here."""
    os.setsid()
    os.closerange(3, 256)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    code = 99
    try:
        code = _command(arguments, a)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # what the interpreter would print
        import traceback

        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _command(arguments: list[str], a: Attempt) -> int:
    from dr_q.cli import main
    from dr_q.learner import saving
    from dr_q.training import failed_writes, writers
    from tests.faults import envs

    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    saving.CHUNK_BYTES = 1  # one row of slots, so that checkpoints share chunks
    writers.RETRY_S, failed_writes._PAUSE_S = 0.2, 0.1  # pyright: ignore[reportPrivateUsage]
    os.environ["DRQ_ENV_FAULTS_ONCE"] = str(a.happened)
    if a.in_process:
        envs.AT.update({**a.environment, **envs.faults_of(a.simulators)})
    else:
        os.environ["DRQ_ENV_FAULTS"] = a.simulators
    shim = ctypes.CDLL(None)
    shim.drq_fault_count_in(COUNTS)
    shim.drq_fault_error(a.errno)
    shim.drq_fault_arm(*map(ctypes.c_long, (a.kill_at, a.fail_at)), a.torn)
    try:
        return main(arguments)
    finally:
        COUNTS[2] = envs.CALLS


def results(run: Path) -> dict[str, bytes]:
    """What must be the same: everything that a run leaves but for times, versions, and TensorBoard's file."""
    files = [run / "evals.csv", *sorted((run / "policy").rglob("*.safetensors")), *(run / "policy").rglob("*.json")]
    files += sorted((run / "checkpoints" / str(STEPS)).iterdir())  # its checkpoint.json has the state of the loop
    files += damages.chunks_of(run, STEPS)
    found = {str(file.relative_to(run)): file.read_bytes() for file in files}
    rows = (run / "metrics.csv").read_text().splitlines()
    times = next(i for i, name in enumerate(rows[0].split(",")) if name.startswith("ms_"))
    return {**found, "metrics.csv": "\n".join(",".join(row.split(",")[:times]) for row in rows).encode()}


def left_behind(run: Path) -> list[str]:
    """Files that were never finished."""
    names = [str(path.relative_to(run)) for path in run.rglob("*")]
    return [name for name in names if re.search(r"(^|/)(\.tmp|\.part-|\.old-)|\.part$", name)]


def _commit() -> str:
    """Of this checkout; "unknown" outside one."""
    git = ["git", "-C", str(Path(__file__).parent)]
    found = subprocess.run([*git, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


COMMIT = _commit()


class Soak:
    """Rounds until enough faults took place."""

    def __init__(self, folder: Path, seed: int, kinds: list[str], damages_too: list[str]):
        self.folder, self.rng, self.kinds, self.damages = folder, random.Random(seed), kinds, damages_too
        self.run, self.backup = folder / "run", folder / "backup"
        self.tried: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = {}
        self.problems: list[str] = []
        self.attempts = self.rounds = 0
        self.longest = self.longest_hang = self.cpu_s = 0.0
        self.whole, self.limit = Whole(), float(TIMEOUT_S)
        self.unread: Expected | None = None
        """Damage that no attempt has read yet."""
        self.metrics_damaged = False
        self.shown = 0

    @property
    def faults(self) -> int:
        """Those that took place."""
        return self.happened.total()

    def reference(self) -> None:
        """The unbroken run; what it takes, and its results."""
        arguments, ended = [*ARGUMENTS, "--out", str(self.run)], Ended(NO_END, 0.0)
        for _ in range(2):  # the second finds compiled programs
            shutil.rmtree(self.run, ignore_errors=True)
            ended = attempt(arguments, Attempt(self.run, self.rng), REFERENCE_TIMEOUT_S)
            assert ended.code == DONE, ended
        self.expected = results(self.run)
        again = attempt(["train", "--resume", str(self.run)], Attempt(self.run, self.rng), REFERENCE_TIMEOUT_S)
        assert (again.code, again.began, again.used, again.measured) == (DONE, True, STEPS, True), again
        assert results(self.run) == self.expected, "a run that had ended was resumed"
        self.whole = Whole(ended.seconds, min(again.seconds, ended.seconds), ended.changes, ended.calls)
        self.limit = max(TIMEOUT_S, 10 * ended.seconds)

    def rarest(self, kinds: list[str]) -> list[str]:
        """In the order in which they are to be tried: each must take place as often as the others."""
        misses = {kind: self.tried[kind] - self.happened[kind] for kind in kinds}
        return sorted(kinds, key=lambda kind: (self.happened[kind] + misses[kind] / 3, self.rng.random()))

    def round(self) -> None:
        """One run, from the beginning to the same results."""
        shutil.rmtree(self.run, ignore_errors=True)
        self.rounds += 1
        self.metrics_damaged, self.unread = False, None
        for number in range(14):
            last = number >= 12
            damage = None if last and self.unread is None else self.damage()
            without = last or (damage is not None and damage.must_stop)  # which leaves a fault no moment to take place
            if self.one(damage, None if without else self.rarest(self.possible())[0]):
                break
        else:
            self.problems.append(f"round {self.rounds} did not end")
            return
        found = results(self.run)
        if self.metrics_damaged:
            found["metrics.csv"] = self.expected["metrics.csv"]
        for name in self.expected.keys() | found.keys():
            if self.expected.get(name) != found.get(name):
                self.problems.append(f"round {self.rounds}: {name} differs from the unbroken run")
        if left := left_behind(self.run):
            self.problems.append(f"round {self.rounds}: left behind: {', '.join(left)}")

    def possible(self) -> list[str]:
        """Faults that can take place in what is left of the run."""
        never = [] if (self.run / "run.json").exists() else ["another process"]
        if (steps_of(self.run) or [0])[-1] > STEPS - EVERY:
            never += IN_STEPS
        return [kind for kind in self.kinds if not any(word in kind for word in never)] or self.kinds

    def damage(self) -> Expected | None:
        """Damage the run, unless it is damaged already; keep a backup."""
        steps = steps_of(self.run)
        if not steps or self.unread is not None:
            return self.unread
        shutil.rmtree(self.backup, ignore_errors=True)
        shutil.copytree(self.run, self.backup)
        for kind in self.rarest(self.damages):
            if steps[-1] == STEPS and kind.endswith((": policy weights", ": policy.json")):
                continue
            file = damages.damage(kind, self.run, self.rng)
            if file is not None:
                self.tried[kind] += 1
                return expected(kind, file.relative_to(self.run), self.backup, self.run)
        return None

    def one(self, damage: Expected | None, fault: str | None) -> bool:
        """One attempt and what must be true after it; whether the run has ended."""
        before = steps_of(self.run)
        new = not (self.run / "run.json").exists() and damage is None
        if new:
            shutil.rmtree(self.run, ignore_errors=True)  # killed before it was a run
        a = Attempt(self.run, self.rng, self.whole, (before or [0])[-1])
        if fault is not None:
            ON_THE_WAY[fault](a)
            self.tried[fault] += 1
        arguments = [*ARGUMENTS, "--out", str(self.run)] if new else ["train", "--resume", str(self.run)]
        ended = attempt(arguments, a, self.limit)
        self.attempts += 1
        self.longest, self.cpu_s = max(self.longest, ended.seconds), self.cpu_s + ended.cpu_s
        what = f"attempt {self.attempts} ({damage.kind if damage else 'no damage'}; {fault}), exit code {ended.code}"
        self.check_times(what, ended)
        self.check_words(what, ended)
        met = fault is not None and took_place(a, ended)
        stopped = damage is not None and is_named(damage, ended)
        if damage is not None:
            self.check_damage(what, damage, ended, stopped, first=damage is not self.unread)
        else:
            self.check_step(what, before, ended)
        if fault is not None and met and not stopped:
            self.happened[fault] += 1
            self.note(fault, {DONE: "finished", KILLED: "killed"}.get(ended.code, f"exit code {ended.code}"))
        elif fault is not None:
            self.note(fault, "did not take place")
        if not stopped:
            self.check_code(what, a, ended, met)
        self.unread = None if stopped or ended.used is not None else damage
        if stopped:  # what the line says: take it from a backup
            shutil.rmtree(self.run)
            shutil.copytree(self.backup, self.run)
        return ended.code == DONE and ended.measured

    def check_damage(self, what: str, damage: Expected, ended: Ended, stopped: bool, *, first: bool) -> None:
        """The newest whole checkpoint is used, and the damaged file named.

        `first`: whether no attempt before this one began to handle it.
        """
        used = ended.used
        if stopped and not damage.may_stop:
            self.problems.append(f"{what}: it could have used step {damage.step}: {ended.err[-500:]}")
        if stopped and ended.code not in damage.codes:
            self.problems.append(f"{what}: {damage.file} stopped it, allowed are {sorted(damage.codes)}")
        if used is not None:
            if damage.must_stop or used != damage.step:
                self.problems.append(f"{what}: resumed from {used} after damage of {damage.file}, not {damage.step}")
            for step in damage.passed_over if first else []:
                line = rf"^the checkpoint of step {step:,} is damaged \(.*{re.escape(damage.file.name)}.*"
                line += f"; resuming from step {damage.step:,} instead$"
                if not re.search(line, ended.out, re.MULTILINE):
                    self.problems.append(f"{what}: it did not name {damage.file} of step {step}")
            said = "evals.csv was damaged; it is restored" in ended.out
            if first and damage.restored is not None and said != damage.restored:
                self.problems.append(f"{what}: evals.csv is restored: said {said}, was {damage.restored}")
        if stopped or used is not None:
            self.happened[damage.kind] += 1
            self.metrics_damaged |= damage.file.name == "metrics.csv" and not stopped
            outcome = "older checkpoint" if damage.passed_over else "same checkpoint"
            self.note(damage.kind, "stopped, named it" if stopped else outcome)

    def check_step(self, what: str, before: list[int], ended: Ended) -> None:
        """Nothing is lost but what came after the last checkpoint."""
        if (ended.used is not None or ended.began) and ended.used != (before[-1] if before else None):
            self.problems.append(f"{what}: resumed from {ended.used}, there were {before}")

    def check_code(self, what: str, a: Attempt, ended: Ended, met: bool) -> None:
        """The exit code is one of the fault's; without a fault the attempt finished."""
        allowed = a.codes | (set() if ended.began else a.early) if met else {DONE}
        if met and KILLED not in a.codes and ended.code == DONE:
            allowed |= {DONE} if self.has_finished() else set()  # it came after the last step
        if ended.code not in allowed:
            self.problems.append(f"{what}: allowed are {sorted(allowed)}: {ended.out[-300:]} {ended.err[-500:]}")
        if ended.code == DONE and not self.has_finished():
            self.problems.append(f"{what}: it has not finished")
        asked = re.search(r"^interrupted at step ([\d,]+)", ended.out, re.MULTILINE)
        reached = int(asked[1].replace(",", "")) if asked else 0
        if reached and steps_of(self.run)[-1:] != [reached]:
            self.problems.append(f"{what}: interrupted at step {reached}, with checkpoints {steps_of(self.run)}")

    def has_finished(self) -> bool:
        """As the run's folder says."""
        record = json.loads((self.run / "run.json").read_text())
        return (record["status"], record["agent_steps"], steps_of(self.run)[-1]) == ("finished", STEPS, STEPS)

    def check_words(self, what: str, ended: Ended) -> None:
        """Errors are one line, and say how to continue."""
        if "Traceback" in ended.err or "Traceback" in ended.out:
            self.problems.append(f"{what}: traceback: {ended.err[-1500:]}")
        lines = [line for line in ended.err.splitlines() if line and not line.startswith("dr-q: stopping ")]
        if ended.code in (FAILED, USAGE) and (len(lines) != 1 or not lines[0].startswith("dr-q: ")):
            self.problems.append(f"{what}: not one line: {ended.err[-800:]}")
        if ended.code == FAILED and ended.began and f"dr-q train --resume {self.run}" not in ended.out + ended.err:
            self.problems.append(f"{what}: it does not say how to resume: {ended.out[-500:]} {ended.err[-500:]}")

    def check_times(self, what: str, ended: Ended) -> None:
        """Nothing hangs, and nothing is left."""
        if ended.code == NO_END:
            self.problems.append(f"{what}: no end after {self.limit:.0f} s")
        if ended.hung_s > ENV_TIMEOUT_S + GRACE_S:
            self.problems.append(f"{what}: ended {ended.hung_s:.1f} s after an environment began to hang")
        if ended.left:
            self.problems.append(f"{what}: {ended.left} processes outlived it")
        self.longest_hang = max(self.longest_hang, ended.hung_s)

    def note(self, kind: str, outcome: str) -> None:
        self.outcomes.setdefault(kind, Counter())[outcome] += 1

    def record(self, seconds: float) -> dict[str, Any]:
        """For the file."""
        return {
            "faults": self.faults,
            "kinds": len(+self.happened),
            "tried": self.tried.total(),
            "attempts": self.attempts,
            "runs": self.rounds,
            "seconds": round(seconds),
            "cpu_seconds": round(self.cpu_s),
            "longest_attempt_s": round(self.longest, 1),
            "limit_s": round(self.limit, 1),
            "longest_hang_s": round(self.longest_hang, 1),
            "env_timeout_s": ENV_TIMEOUT_S,
            "unbroken_run_s": round(self.whole.seconds, 1),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[2], 1),
            "commit": COMMIT,
            "command": shlex.join(["python", "-m", "tests.faults.soak", *_repeatable(sys.argv[1:])]),
            "problems": self.problems,
            "by_kind": {
                kind: {"tried": count, "took place": self.happened[kind], **self.outcomes.get(kind, {})}
                for kind, count in sorted(self.tried.items())
            },
        }


def _repeatable(words: list[str]) -> list[str]:
    """The arguments without --out: where the record is written is not part of the test."""
    return [word for before, word in zip(["", *words], words, strict=False) if "--out" not in (before, word)]


def is_named(damage: Expected, ended: Ended) -> bool:
    """Whether an attempt stopped before it resumed, with a line that is about the damage."""
    (line,) = (ended.err.splitlines() or [""])[-1:]
    other = "cannot use " in line or "is being trained by another process" in line
    early = ended.used is None and ended.code in (FAILED, USAGE) and not other
    return early and any(name in line for name in damage.names)


def table(record: dict[str, Any]) -> str:
    """The record as a table."""
    lines = [
        "# The record of the soak",
        f"`{record['command']}` at {record['commit']}, on {record['cores']} cores with a load average of "
        f"{record['load']}. An unbroken run takes {record['unbroken_run_s']} s.",
        "",
        f"{record['faults']} faults of {record['kinds']} kinds took place, in {record['attempts']} attempts at "
        f"{record['runs']} runs, {record['seconds']} s; problems: {len(record['problems'])}. "
        f"{record['tried'] - record['faults']} more were tried and did not take place: the attempt had ended before "
        "their moment, or its damage had stopped it. They are not counted.",
        "",
        f"The longest attempt took {record['longest_attempt_s']} s (limit: {record['limit_s']} s). Environments that "
        f"hung ended their run after at most {record['longest_hang_s']} s (`--env-timeout {record['env_timeout_s']}`).",
        '"Older checkpoint": the newest one without the damage was used. "Same checkpoint": the damage was not in a '
        'checkpoint. "Stopped, named it": one line, exit code 1 or 2, and the run was taken from a backup.',
        "",
        "| fault | tried | took place | how it ended |",
        "|---|---|---|---|",
    ]
    for kind, counts in record["by_kind"].items():
        known = ("tried", "took place", "did not take place")
        ended = ", ".join(f"{outcome} {count}" for outcome, count in counts.items() if outcome not in known)
        lines.append(f"| {kind} | {counts['tried']} | {counts['took place']} | {ended} |")
    return "\n".join([*lines, *(f"- {problem}" for problem in record["problems"])]) + "\n"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=300, help="how many must take place")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=180, help="begin no run after that")
    parser.add_argument("--out", type=Path, default=Path("soak.json"))
    parser.add_argument("--only", default="", help="faults on the way with these words in their names, divided by |")
    parser.add_argument("--damages", default="", help="the same of damage")
    options = parser.parse_args()
    kinds = [kind for kind in ON_THE_WAY if any(word in kind for word in options.only.split("|"))]
    damaged = [kind for kind in damages.KINDS if any(word in kind for word in options.damages.split("|"))]
    if "DRQ_FAULT_ROOT" not in os.environ:  # again, with the shim
        home = Path(tempfile.mkdtemp(prefix="drq-soak-"))
        environment = disk.with_faults(home / "run", full=home / "full", home=home)
        environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(home / "jax"))
        environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        try:
            return subprocess.call([sys.executable, "-m", "tests.faults.soak", *sys.argv[1:]], env=environment)
        finally:
            shutil.rmtree(home, ignore_errors=True)
    warnings.filterwarnings("ignore", message=r"os.fork\(\) was called")
    import dr_q.training.api  # noqa: F401 - before the forks
    import tests.faults.envs  # noqa: F401

    gc.freeze()
    soak, begin = Soak(Path(os.environ["DRQ_FAULT_HOME"]), options.seed, kinds, damaged), time.monotonic()
    soak.reference()
    print(f"an unbroken run takes {soak.whole}", flush=True)
    while soak.faults < options.faults and time.monotonic() - begin < 60 * options.minutes:
        soak.round()
        record = soak.record(time.monotonic() - begin)
        done = f"{record['faults']} faults, {soak.attempts} attempts, {record['seconds']} s"
        print(f"{done}, problems: {len(soak.problems)}", *soak.problems[soak.shown :], sep="\n", flush=True)
        soak.shown = len(soak.problems)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(table(record))
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
