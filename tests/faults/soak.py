"""Random faults against runs that are resumed until they end; the results must be those of an unbroken run.

    python -m tests.faults.soak --faults 300 --out benchmarks/results/soak.json

A round is a run of 400 steps of two seeds with tiny networks. Each attempt at it begins with damage to a file of the
run (or none) and meets a fault on the way (or none). After it: no traceback, no hang, an exit code that is allowed,
no process left behind, and it resumed from the newest checkpoint that was whole. An environment that hangs must end the
attempt within `--env-timeout` and 10 s. Damage that nobody can repair (of run.json; of a chunk that
every checkpoint has) must end the attempt with one line and the exit code 1 or 2; then the run is taken from a backup.
Every attempt is a process, forked from one that has loaded the libraries.

Damage to metrics.csv is not noticed in its numbers, so a run that had it is compared without that file. Policies are
written by evaluations, so they are damaged only while one is still to come.
"""

import argparse
import contextlib
import ctypes
import gc
import json
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

from tests.faults import disk
from tests.sweep.processes import in_session
from tests.training import tiny

STEPS, EVERY = 400, 20
TIMEOUT_S = 90
SETTINGS: dict[str, Any] = {
    **tiny.SIZES,
    "seeds": 2,
    "steps": STEPS,
    "checkpoint_every": EVERY,
    "keep_checkpoints": 3,
    "eval_every": 40,
    "eval_episodes": 1,
}
ENV_TIMEOUT_S = 5
GRACE_S = 10
"""Seconds after the timeout of environments, or after the end of an attempt, in which all of it must have ended."""
ARGUMENTS = ["train", "tests.faults.envs:drq-watched-v0"]
ARGUMENTS += [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
KILLED, DONE, FAILED, USAGE, INTERRUPTED, TERMINATED = -9, 0, 1, 2, 130, 143


class Attempt:
    """What one process is to meet."""

    def __init__(self, run: Path, rng: random.Random, seconds: float):
        self.run, self.rng, self.seconds = run, rng, seconds
        self.environment: Mapping[int, Callable[[], object]] = {}
        self.simulators = ""
        """Faults of environments by name, as `envs.faults_of` reads them."""
        self.in_process = True
        """Otherwise each seed is simulated by a process of its own."""
        self.hangs = False
        self.kill_when_it_hangs = False
        self.locked = False
        """Another process trains in the folder."""
        self.kill_at = self.fail_at = self.torn = 0
        self.errno = 28
        self.after: Sequence[tuple[float, int]] = ()
        """Signals from outside: seconds, number."""
        self.codes = {DONE}

    def call(self) -> int:
        """A step of an environment, somewhere in the run."""
        return self.rng.randint(1, 2 * STEPS if self.in_process else STEPS)

    def execution(self) -> list[str]:
        """Options of this attempt that change no result."""
        timeout = ["--env-timeout", str(ENV_TIMEOUT_S)] if self.hangs else []
        return ["--in-process", str(self.in_process), "--log-every", str(EVERY), *timeout]

    def change(self) -> int:
        """A change of the disk, somewhere in the run."""
        return self.rng.randint(1, 1200)


# On the way


def kill_at_a_time(a: Attempt) -> None:
    a.after, a.codes = [(a.rng.uniform(0.1, a.seconds), signal.SIGKILL)], {DONE, KILLED}


def hang_up(a: Attempt) -> None:
    a.after, a.codes = [(a.rng.uniform(0.1, a.seconds), signal.SIGHUP)], {DONE, -signal.SIGHUP}


def kill_at_a_change(a: Attempt) -> None:
    a.kill_at, a.codes = a.change(), {DONE, KILLED}


def kill_in_half_of_a_write(a: Attempt) -> None:
    a.kill_at, a.torn, a.codes = a.change(), 1, {DONE, KILLED}


def _fails_from_a_change(number: int) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        a.fail_at, a.errno, a.codes = a.change(), number, {DONE, FAILED}

    return arm


def full_for_a_moment(a: Attempt) -> None:
    from tests.faults import envs

    begin, file = a.call(), a.run.parent / "full"
    a.environment = {begin: envs.fills(file), begin + a.rng.randint(1, 150): envs.empties(file)}
    a.codes = {DONE, FAILED}


def full_and_terminated(a: Attempt) -> None:
    from tests.faults import envs

    begin, file = a.call(), a.run.parent / "full"
    a.environment = {begin: envs.fills(file), begin + 5: envs.signals(signal.SIGTERM)}
    a.codes = {DONE, FAILED, TERMINATED}


def _signal(number: int, code: int) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        from tests.faults import envs

        a.environment, a.codes = {a.call(): envs.signals(number)}, {DONE, code}

    return arm


def terminate_at_a_time(a: Attempt) -> None:
    # Before the run listens, Python ends in its own way.
    a.after, a.codes = [(a.rng.uniform(0.1, a.seconds), signal.SIGTERM)], {DONE, TERMINATED, -signal.SIGTERM}


def terminate_twice(a: Attempt) -> None:
    from tests.faults import envs

    a.environment, a.codes = {a.call(): envs.signals_twice()}, {DONE, INTERRUPTED, TERMINATED}


def _environment(what: str, *, in_process: bool = True, hangs: bool = False) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        a.in_process, a.hangs = in_process, hangs
        a.simulators, a.codes = f"{a.call()}={what}", {DONE, FAILED}

    return arm


def killed_while_a_simulator_hangs(a: Attempt) -> None:
    a.in_process, a.kill_when_it_hangs = False, True
    a.simulators, a.codes = f"{a.call()}=computes", {DONE, KILLED}


def _with_simulators(fault: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
    def arm(a: Attempt) -> None:
        a.in_process = False
        fault(a)

    return arm


def another_process_trains(a: Attempt) -> None:
    a.locked = (a.run / "run.json").exists()
    a.codes = {USAGE} if a.locked else {DONE}


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


# Damage to files


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


def of_the_checkpoint(name: str) -> Callable[[Path], list[Path]]:
    """A file of the newest checkpoint."""

    def find(run: Path) -> list[Path]:
        steps = _steps(run)
        return [run / "checkpoints" / str(steps[-1]) / name] if steps else []

    return find


def chunks(run: Path) -> list[Path]:
    return sorted((run / "checkpoints" / "replay").rglob("*.safetensors"))


def _file(pattern: str) -> Callable[[Path], list[Path]]:
    return lambda run: sorted(run.glob(pattern))


FILES: dict[str, Callable[[Path], list[Path]]] = {
    "agents": of_the_checkpoint("agents.safetensors"),
    "replay": of_the_checkpoint("replay.safetensors"),
    "episodes": of_the_checkpoint("episodes.safetensors"),
    "checkpoint.json": of_the_checkpoint("checkpoint.json"),
    "a chunk": chunks,
    "evals.csv": _file("evals.csv"),
    "metrics.csv": _file("metrics.csv"),
    "policy weights": _file("policy/*.safetensors"),
    "policy.json": _file("policy/policy.json"),
    "TensorBoard's file": _file("tensorboard/*"),
    "run.json": _file("run.json"),
}
DAMAGES = {"flipped bit": flip, "truncated": truncate, "empty": empty, "removed": remove}


def swapped_agents(run: Path, rng: random.Random) -> bool:
    """The agents of an older step."""
    steps = _steps(run)
    if len(steps) < 2:
        return False
    newest, older = (run / "checkpoints" / str(step) / "agents.safetensors" for step in (steps[-1], steps[-2]))
    shutil.copyfile(older, newest)
    return True


def swapped_seeds(run: Path, rng: random.Random) -> bool:
    """The newest chunk of one seed in place of the other's."""
    steps = _steps(run)
    if not steps:
        return False
    names = json.loads((run / "checkpoints" / str(steps[-1]) / "checkpoint.json").read_text())["chunks"]
    folder = run / "checkpoints" / "replay"
    first, second = (folder / f"seed{seed}" / f"{mine[-1]}.safetensors" for seed, mine in enumerate(names))
    shutil.copyfile(first, second)
    return True


def _in_index(field: str, value: Any) -> Callable[[Path, random.Random], bool]:
    def change(run: Path, rng: random.Random) -> bool:
        steps = _steps(run)
        if not steps:
            return False
        file = run / "checkpoints" / str(steps[-1]) / "checkpoint.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
        return True

    return change


def stray_files(run: Path, rng: random.Random) -> bool:
    """What is no checkpoint, next to them."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return False
    (folder / ".part-60").mkdir(exist_ok=True)
    (folder / ".part-60" / "agents.safetensors").write_bytes(b"half")
    (folder / "notes").write_text("mine")
    (folder / "replay" / "seed0" / "00000000-1-00000000-f3.safetensors").write_bytes(b"half")
    return True


def half_a_row(run: Path, rng: random.Random) -> bool:
    """A last row of evals.csv that is not whole."""
    if not (run / "evals.csv").exists():
        return False
    with (run / "evals.csv").open("a") as file:
        file.write("0,4")
    return True


OTHER_DAMAGE: dict[str, Callable[[Path, random.Random], bool]] = {
    "agents of an older step": swapped_agents,
    "chunk of another seed": swapped_seeds,
    "agent_steps 9999": _in_index("agent_steps", 9999),
    "episodes NaN": _in_index("episodes", [float("nan")] * 2),
    "chunk names with ..": _in_index("chunks", [["../../x"], []]),
    "stray files": stray_files,
    "half a row": half_a_row,
}


def damage_kinds() -> list[tuple[str, str]]:
    """Every damage of every file, and others."""
    plain = [(f"{damage}: {file}", file) for file in FILES for damage in DAMAGES]
    return plain + [(name, "checkpoint.json") for name in OTHER_DAMAGE]


def do_damage(kind: str, run: Path, rng: random.Random) -> Path | None:
    """Damage the run; which file, if one is to be taken from the backup if the run cannot do without it."""
    if kind in OTHER_DAMAGE:
        return run if OTHER_DAMAGE[kind](run, rng) else None
    damage, _, file = kind.partition(": ")
    there = [path for path in FILES[file](run) if path.stat().st_size]
    if not there:
        return None
    chosen = rng.choice(there)
    DAMAGES[damage](chosen, rng)
    return chosen


def _steps(run: Path) -> list[int]:
    folder = run / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []


# Attempts


class Ended(NamedTuple):
    code: int
    seconds: float
    out: str
    err: str
    left: int = 0
    """Processes that outlived it."""
    hung_s: float = 0.0
    """Seconds from where an environment began to hang."""


def attempt(arguments: list[str], a: Attempt) -> Ended:
    """Run the command in a fork of this process, with its faults."""
    folder = a.run.parent
    out, err, hung = folder / "out", folder / "err", folder / "hung"
    for file in (folder / "full", hung):
        file.unlink(missing_ok=True)
    lock = _lock(a.run) if a.locked else contextlib.nullcontext()
    with lock:
        ended = _attempt([*arguments, *a.execution()], a, out, err, hung)
    (folder / "full").unlink(missing_ok=True)
    return ended


def _lock(run: Path) -> contextlib.AbstractContextManager[object]:
    from dr_q.run_folder import lock_run_folder

    return lock_run_folder(run)


def _attempt(arguments: list[str], a: Attempt, out: Path, err: Path, hung: Path) -> Ended:
    begin = time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()
        os.closerange(3, 256)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever this was started with
        code = 99
        try:
            code = _in_child(arguments, a, hung)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:  # what the interpreter would print
            import traceback

            traceback.print_exc()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    pending = sorted(a.after)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic() - begin
        if done:
            break
        if pending and now >= pending[0][0]:
            os.kill(child, pending.pop(0)[1])
        if a.kill_when_it_hangs and hung.exists():
            os.kill(child, signal.SIGKILL)
        if now > TIMEOUT_S:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        time.sleep(0.01)
    hung_s = time.time() - float(hung.read_text()) if a.hangs and hung.exists() else 0.0
    left = _end_session(child)
    code = -1000 if now > TIMEOUT_S else os.waitstatus_to_exitcode(status)
    return Ended(code, now, out.read_text(), err.read_text(errors="replace"), left, hung_s)


def _end_session(session: int) -> int:
    """How many processes of an attempt are there after the time that they have; they are ended."""
    until = time.monotonic() + GRACE_S
    while (left := in_session(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _in_child(arguments: list[str], a: Attempt, hung: Path) -> int:
    from dr_q.cli import main
    from dr_q.training import failed_writes, writers
    from tests.faults import envs

    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    writers.RETRY_S, failed_writes._PAUSE_S = 0.2, 0.1  # pyright: ignore[reportPrivateUsage]
    os.environ["DRQ_ENV_FAULTS_ONCE"] = str(hung)
    if a.in_process:
        envs.AT.update({**a.environment, **envs.faults_of(a.simulators)})
    else:
        os.environ["DRQ_ENV_FAULTS"] = a.simulators
    shim = ctypes.CDLL(None)
    shim.drq_fault_error(a.errno)
    shim.drq_fault_arm(a.kill_at, a.fail_at, a.torn)
    return main(arguments)


def results(run: Path) -> dict[str, bytes]:
    """What must be the same."""
    newest = run / "checkpoints" / str(STEPS)
    files = [run / "evals.csv", *sorted((run / "policy").glob("*.safetensors"))]
    files += [newest / name for name in ("agents.safetensors", "replay.safetensors", "episodes.safetensors")]
    index = json.loads((newest / "checkpoint.json").read_text())
    for seed, names in zip(index["seeds"], index["chunks"], strict=True):
        files += [run / "checkpoints" / "replay" / f"seed{seed}" / f"{name}.safetensors" for name in names]
    found = {str(file.relative_to(run)): file.read_bytes() for file in files}
    rows = (run / "metrics.csv").read_text().splitlines()
    times = next(i for i, name in enumerate(rows[0].split(",")) if name.startswith("ms_"))
    return {**found, "metrics.csv": "\n".join(",".join(row.split(",")[:times]) for row in rows).encode()}


def _commit() -> str:
    """Of this checkout; "unknown" outside one."""
    git = ["git", "-C", str(Path(__file__).parent)]
    found = subprocess.run([*git, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


COMMIT = _commit()


class Soak:
    """Rounds until there were enough faults."""

    def __init__(self, folder: Path, seed: int, kinds: list[str]):
        self.folder, self.rng, self.kinds = folder, random.Random(seed), kinds
        self.run, self.backup = folder / "run", folder / "backup"
        self.tried: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = {}
        self.problems: list[str] = []
        self.attempts = self.rounds = 0
        self.longest = self.longest_hang = 0.0
        self.seconds = 5.0
        self.metrics_damaged = False
        self.turn: dict[str, list[str]] = {"damage": [], "fault": []}
        self.shown = 0

    def reference(self) -> None:
        """The unbroken run."""
        for _ in range(2):  # the second finds compiled programs
            shutil.rmtree(self.run, ignore_errors=True)
            ended = attempt([*ARGUMENTS, "--out", str(self.run)], Attempt(self.run, self.rng, 1))
            assert ended.code == 0, ended
            self.seconds = ended.seconds
        self.expected = results(self.run)

    def next_kind(self, which: str, kinds: list[str]) -> str:
        """Each kind as often as the others, in any order."""
        if not self.turn[which]:
            self.turn[which] = self.rng.sample(kinds, len(kinds))
        return self.turn[which].pop()

    def round(self) -> None:
        """One run, from the beginning to the same results."""
        shutil.rmtree(self.run, ignore_errors=True)
        self.rounds += 1
        self.metrics_damaged = False
        arguments = [*ARGUMENTS, "--out", str(self.run)]
        for number in range(12):
            if (self.run / "run.json").exists():
                arguments = ["train", "--resume", str(self.run)]
            damage = self.damage() if number else None
            last = number == 11
            fault = None if last else self.next_kind("fault", self.kinds)
            ended = self.one(arguments, damage, fault)
            if ended is not None and ended.code == 0 and "finished" in ended.out and _steps(self.run)[-1:] == [STEPS]:
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

    def damage(self) -> str | None:
        """Damage the run; keep a backup."""
        if not _steps(self.run):
            return None
        shutil.rmtree(self.backup, ignore_errors=True)
        shutil.copytree(self.run, self.backup)
        kind = self.next_kind("damage", [kind for kind, _ in damage_kinds()])
        if "policy" in kind and _steps(self.run)[-1] == STEPS:
            return None
        self.metrics_damaged |= "metrics" in kind
        return kind if do_damage(kind, self.run, self.rng) is not None else None

    def one(self, arguments: list[str], damage: str | None, fault: str | None) -> Ended | None:
        """One attempt and what must be true after it."""
        a = Attempt(self.run, self.rng, self.seconds)
        if fault is not None:
            ON_THE_WAY[fault](a)
        before = _steps(self.run)
        ended = attempt(arguments, a)
        self.attempts += 1
        self.longest = max(self.longest, ended.seconds)
        what = f"attempt {self.attempts} ({damage}; {fault}), exit code {ended.code}"
        self.check_times(what, ended)
        if "Traceback" in ended.err or "Traceback" in ended.out:
            self.problems.append(f"{what}: traceback: {ended.err[-1500:]}")
        refused = damage is not None and ended.code in (1, 2) and "resumed at step" not in ended.out
        if ended.code not in a.codes and not refused:
            self.problems.append(f"{what}: allowed are {sorted(a.codes)}: {ended.err[-500:]}")
        resumed = re.search(r"resumed at step ([\d,]+)", ended.out)
        used = int(resumed[1].replace(",", "")) if resumed else None
        older_is_fine = damage is not None
        if used is not None and used not in before[-3 if older_is_fine else -1 :]:
            self.problems.append(f"{what}: resumed from {used}, there were {before}")
        if damage is not None:
            self.tried[damage] += 1
            outcome = (
                "stopped, named it" if refused else "older checkpoint" if used != before[-1] else "same checkpoint"
            )
            if used is None and not refused:
                outcome = "ended before it was read"
            self.note(damage, outcome)
        if fault is not None:
            self.tried[fault] += 1
            self.note(fault, {0: "did not stop the run", KILLED: "killed"}.get(ended.code, f"exit code {ended.code}"))
        if refused:
            said = ended.err.strip().splitlines()
            if len(said) != 1 or not said[0].startswith("dr-q: "):
                self.problems.append(f"{what}: not one line: {ended.err[-500:]}")
            shutil.rmtree(self.run)  # what the line says: take it from a backup
            shutil.copytree(self.backup, self.run)
        elif used is None and damage is not None:  # nobody has looked at it yet
            shutil.rmtree(self.run)
            shutil.copytree(self.backup, self.run)
        return ended

    def check_times(self, what: str, ended: Ended) -> None:
        """Nothing hangs, and nothing is left."""
        if ended.code == -1000:
            self.problems.append(f"{what}: no end after {TIMEOUT_S} s")
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
            "faults": sum(self.tried.values()),
            "kinds": len(self.tried),
            "attempts": self.attempts,
            "runs": self.rounds,
            "seconds": round(seconds),
            "longest_attempt_s": round(self.longest, 1),
            "longest_hang_s": round(self.longest_hang, 1),
            "env_timeout_s": ENV_TIMEOUT_S,
            "unbroken_run_s": round(self.seconds, 1),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[2], 1),
            "commit": COMMIT,
            "command": shlex.join(["python", "-m", "tests.faults.soak", *sys.argv[1:]]),
            "problems": self.problems,
            "by_kind": {kind: {"tried": count, **self.outcomes[kind]} for kind, count in sorted(self.tried.items())},
        }


def table(record: dict[str, Any]) -> str:
    """The record as a table."""
    lines = [
        "# The record of the soak",
        f"`{record['command']}` at {record['commit']}, on {record['cores']} cores with a load average of "
        f"{record['load']}. An unbroken run takes {record['unbroken_run_s']} s.",
        '"Did not stop the run" includes faults whose moment came after the end of the attempt.',
        '"Stopped, named it": one line, exit code 1 or 2, and the file was taken from a backup.',
        f"Environments that hung ended their run after at most {record['longest_hang_s']} s "
        f"(`--env-timeout {record['env_timeout_s']}`).",
        "",
        f"{record['faults']} faults of {record['kinds']} kinds in {record['attempts']} attempts at {record['runs']} "
        f"runs, {record['seconds']} s, longest attempt {record['longest_attempt_s']} s; "
        f"problems: {len(record['problems'])}.",
        "",
        "| fault | tried | how it ended |",
        "|---|---|---|",
    ]
    for kind, counts in record["by_kind"].items():
        ended = ", ".join(f"{outcome} {count}" for outcome, count in counts.items() if outcome != "tried")
        lines.append(f"| {kind} | {counts['tried']} | {ended} |")
    return "\n".join([*lines, *(f"- {problem}" for problem in record["problems"])]) + "\n"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=180)
    parser.add_argument("--out", type=Path, default=Path("soak.json"))
    parser.add_argument("--only", default="", help="faults on the way with these words in their names, divided by |")
    options = parser.parse_args()
    kinds = [kind for kind in ON_THE_WAY if any(word in kind for word in options.only.split("|"))]
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
    soak, begin = Soak(Path(os.environ["DRQ_FAULT_HOME"]), options.seed, kinds), time.monotonic()
    soak.reference()
    print(f"an unbroken run takes {soak.seconds:.1f} s", flush=True)
    while sum(soak.tried.values()) < options.faults and time.monotonic() - begin < 60 * options.minutes:
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
