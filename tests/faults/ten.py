"""Ten faults that version 675da62 did not withstand, tried against any version through its command line only.

    python -m tests.faults.ten --source src
    git archive 675da62 src | tar -x -C /tmp/old; python -m tests.faults.ten --source /tmp/old/src

Prints for each whether it held and what was seen; the exit code is 1 if one did not. Everything happens in processes of
`python -m dr_q` with that source, so that nothing depends on how a version is made inside. It needs Linux, a C compiler
(`shim.c`) and Ray, and takes about four minutes on two cores.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import disk
from tests.sweep.processes import children, in_session, listening, named
from tests.training import tiny

ROOT = Path(__file__).parents[2]
WATCHED, GENEROUS = (f"tests.faults.envs:drq-{name}-v0" for name in ("watched", "generous"))
PATIENCE_S = 120
"""A run of these takes seconds."""


class Ended(NamedTuple):
    code: int | None
    """None: it did not end."""
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def trouble(self) -> str:
        """What must never be seen."""
        if self.code is None:
            return f"no end after {PATIENCE_S} s"
        return f"traceback: {last_line(self.err)}" if "Traceback" in self.said else ""


class Faults:
    """The ten, against one version."""

    def __init__(self, source: Path, folder: Path):
        self.source, self.folder = source, folder
        self.has_timeout = "--env-timeout" in self.call("train", "--help").out

    # Calling

    def environment(self, **more: object) -> dict[str, str]:
        return {
            **os.environ,
            **{name: str(value) for name, value in more.items()},
            "PYTHONPATH": os.pathsep.join((str(self.source), str(ROOT))),
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "RAY_worker_niceness": "0",
        }

    @contextlib.contextmanager
    def started(self, *words: object, **variables: object) -> Iterator[subprocess.Popen[str]]:
        """A command in a session of its own, which ends with the block."""
        process = subprocess.Popen(
            [sys.executable, "-m", "dr_q", *map(str, words)],
            cwd=self.folder, env=self.environment(**variables), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        finally:
            for pid in {process.pid, *children(process.pid), *in_session(process.pid)}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()

    def call(self, *words: object, **variables: object) -> Ended:
        with self.started(*words, **variables) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                return Ended(None, "", "")
            return Ended(process.returncode, out, err)

    def train(self, name: str, *words: object, task: str = WATCHED, **variables: str) -> Ended:
        """A run of tiny networks in this folder, with checkpoints of steps 40 and 80; later words win."""
        sizes = {**tiny.SIZES, "steps": 80, "eval_every": 40, "eval_episodes": 1, "checkpoint_every": 40, "keep": 3}
        given = {str(words[i])[2:].replace("-", "_"): words[i + 1] for i in range(0, len(words), 2)}
        flags = flags_of({**sizes, **given})
        return self.call("train", task, "--out", self.folder / name, *flags, **variables)

    def resume(self, name: str, steps: int = 120) -> Ended:
        return self.call("train", "--resume", self.folder / name, "--steps", steps)

    def trained(self, seeds: int = 1) -> Path:
        """A run to damage."""
        base = self.folder / f"base{seeds}"
        if not base.exists():
            ended = self.train(base.name, "--seeds", seeds)
            assert ended.code == 0, ended
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(base, copy)
        return copy

    def status(self, name: str) -> str:
        return json.loads((self.folder / name / "run.json").read_text())["status"]

    # The ten: what did not hold, or nothing

    def full_for_a_moment(self) -> str:
        """1. A disk that is full for a moment where TensorBoard writes; then the first SIGTERM."""
        out, full = self.folder / "full", self.folder / "no-space"
        root = out / "tensorboard"  # nothing else fails
        variables = {**disk.with_faults(root, full=full), "DRQ_ENV_FAULTS": f"5=fills:{full},4000=empties:{full}"}
        sizes = {**tiny.SIZES, "steps": 400, "exploration_steps": 390, "eval_every": 2, "eval_episodes": 1}
        flags = flags_of(sizes)
        with self.started("train", WATCHED, "--out", out, *flags, **variables) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, err = process.communicate(timeout=PATIENCE_S)
                return "" if process.returncode == 0 else f"exit code {process.returncode}: {last_line(err)}"
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                return f"no end after {PATIENCE_S} s; SIGTERM did nothing"
            return f"no end after {PATIENCE_S} s; SIGTERM ended it with {process.returncode}"

    def checksums(self) -> str:
        """2. Flipped bits in agents, replay and a chunk; agents and replay of another step, a chunk of another seed."""
        wrong = []
        places = {
            "agents": "checkpoints/80/agents.safetensors",
            "replay": "checkpoints/80/replay.safetensors",
            "chunk": "checkpoints/replay/**/*.safetensors",
            "agents of another step": "checkpoints/80/agents.safetensors",
            "replay of another step": "checkpoints/80/replay.safetensors",
            "chunk of another seed": "checkpoints/replay/**/*.safetensors",
        }
        for what, pattern in places.items():
            run = self.trained(2 if "seed" in what else 1)
            files = sorted(run.glob(pattern))
            if "another step" in what:
                shutil.copyfile(run / "checkpoints" / "40" / files[-1].name, files[-1])
            elif "another seed" in what:
                newest = [max(mine.iterdir(), key=_newest) for mine in sorted({file.parent for file in files})]
                assert len(newest) == 2, newest
                shutil.copyfile(newest[0], newest[1])
            else:
                data = bytearray(files[-1].read_bytes())
                header = 8 + int.from_bytes(data[:8], "little")
                data[header + (len(data) - header) // 2] ^= 1
                files[-1].write_bytes(bytes(data))
            ended = self.resume(run.name)
            if ended.trouble or "damaged" not in ended.said:
                wrong.append(f"{what}: {ended.trouble or f'not noticed, exit code {ended.code}'}")
        return "; ".join(wrong)

    def sweep(self, name: str, *words: object) -> list[object]:
        sizes = {**tiny.SIZES, "steps": 120, "eval_every": 40, "eval_episodes": 1, "checkpoint_every": 40}
        flags = flags_of(sizes)
        tasks = [f"tests.sweep.toys:sweep-{task}-v0" for task in ("slow", "walk", "calm")]
        one_by_one = ["--cpus-per-job", os.cpu_count()]
        return ["sweep", *tasks, "--seeds", 2, "--out", self.folder / name, *one_by_one, *flags, *words]

    def listens_at_home(self) -> str:
        """3. Where a local sweep's Ray listens."""
        with self.started(*self.sweep("sweep")) as process:
            found: dict[str, object] = {}
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until and process.poll() is None:
                found = {**found, **listening([process.pid, *children(process.pid)])}
                if "raylet" in found and list(self.folder.glob("sweep/**/checkpoints/40")):
                    break
                time.sleep(0.2)
        if "raylet" not in found:
            return "no sweep was seen"
        open_to_all = sorted(
            name
            for name, mine in found.items()
            if any(not each.is_loopback for each in mine)  # pyright: ignore
        )
        return f"{', '.join(open_to_all)} listen on all interfaces" if open_to_all else ""

    def limits(self) -> str:
        """4. Values far beyond what can be."""
        wrong = []
        with self.started("train", WATCHED, "--seeds", 100_000_000, "--out", self.folder / "many") as process:
            until, most = time.monotonic() + 30, 0
            while process.poll() is None and time.monotonic() < until and most < 2:
                most = max(most, len(children(process.pid)))
                time.sleep(0.02)
            if most or process.poll() != 2:
                wrong.append(f"--seeds 100000000: {most} simulators begun, exit code {process.poll()}")
        table = self.folder / "table.csv"
        table.write_text("task,preset,seed,agent_steps,return\n" + "x" * 200_000 + ",dr.q,0,1,1\n")
        short = ["--steps", "45", *(f"--{k.replace('_', '-')}={v}" for k, v in tiny.SIZES.items())]
        sweep = ["sweep", WATCHED, "--dry-run", "--out", self.folder / "none"]
        for words, known in (
            (["train", WATCHED, *short, "--steps", "99999999999999999999"], 2),
            (["train", WATCHED, *short, "--eval-episodes", "100000000"], 2),
            (["train", WATCHED, *short, "--preset", ""], 2),
            (["train", WATCHED, *short, "--replay-capacity", "1"], 2),
            (["train", WATCHED, *short, "--noise-dims", "1000000000"], 2),
            ([*sweep, "--throughput", "nan"], 2),
            ([*sweep[:2], "--gpus-per-job", "nan", "--out", self.folder / "none"], 2),
            (["results", table], 1),
        ):
            out = [] if "--out" in words or words[0] == "results" else ["--out", self.folder / "limits"]
            before = time.monotonic()
            with self.started(*words, *out) as process:
                try:
                    _, err = process.communicate(timeout=40)
                    code = process.returncode
                except subprocess.TimeoutExpired:
                    err, code = "", None
            shutil.rmtree(self.folder / "limits", ignore_errors=True)
            name = "a field of 200,000 characters" if words[0] == "results" else " ".join(map(str, words[-2:]))
            name = f"--preset {words[-1]!r}" if words[-2] == "--preset" else name
            name = "--gpus-per-job nan" if "--gpus-per-job" in words else name
            if "Traceback" in err:
                wrong.append(f"{name}: traceback")
            elif code not in (known, 2):
                seconds = time.monotonic() - before
                wrong.append(f"{name}: accepted (exit code {code} after {seconds:.0f} s)")
        return "; ".join(wrong)

    def orphans(self) -> str:
        """5. Simulators that hang while their parent is killed."""
        hung = self.folder / "hung"
        flags = flags_of({**tiny.SIZES, "steps": 80})
        words = ["train", WATCHED, "--seeds", 2, "--out", self.folder / "orphans", *flags]
        with self.started(*words, DRQ_ENV_FAULTS="100=computes", DRQ_ENV_FAULTS_ONCE=hung) as process:
            if not wait_for(hung.exists, process):
                return "no simulator was seen to hang"
            process.kill()
            process.wait()
            time.sleep(10)
            left = in_session(process.pid)
        return f"{len(left)} simulators stay alive 10 s after a kill" if left else ""

    def json_files(self) -> str:
        """6. Wrong fields in checkpoint.json and run.json."""
        wrong = []
        changes: list[tuple[str, str, object]] = [
            ("checkpoint.json", "agent_steps", 9999),
            ("checkpoint.json", "agent_steps", "many"),
            ("checkpoint.json", "episodes", [float("nan")]),
            ("checkpoint.json", "chunks", [["../../x"]]),
            ("checkpoint.json", "chunks", 3),
            ("run.json", "settings", []),
            ("run.json", "seeds", "all"),
        ]
        for name, field, value in changes:
            run = self.trained()
            for file in [run / name] if name == "run.json" else sorted(run.glob(f"checkpoints/*/{name}")):
                file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
            ended = self.resume(run.name)
            if ended.trouble:
                wrong.append(f"{name} {field}={value!r}: {ended.trouble}")
            elif ended.code == 0:
                wrong.append(f"{name} {field}={value!r}: not noticed")
            elif "simulator" in ended.err:
                wrong.append(f"{name} {field}={value!r}: blamed on the simulator")
        return "; ".join(wrong)

    def lost_raylet(self) -> str:
        """7. Ray's own process is killed while jobs still wait; no retry is allowed."""
        out = self.folder / "raylet"
        with self.started(*self.sweep("raylet", "--retries", 0)) as process:
            if not wait_for(lambda: list(out.glob("**/checkpoints/40")), process):
                return "no sweep was seen"
            for raylet in named(children(process.pid), "raylet"):
                os.kill(raylet, signal.SIGKILL)
            try:
                _, err = process.communicate(timeout=2 * PATIENCE_S)
            except subprocess.TimeoutExpired:
                return "the sweep did not end"
        return "" if process.returncode == 0 else f"exit code {process.returncode}: {last_line(err)}"

    def in_process(self) -> str:
        """8. An environment in the process of training that hangs, and one that ends the process."""
        wrong = []
        timeout = ["--env-timeout", 5] if self.has_timeout else []
        ended = self.train("hangs", "--in-process", "True", *timeout, DRQ_ENV_FAULTS="100=hangs")
        if ended.code != 1:
            wrong.append(f"hangs: {ended.trouble or ended.code}")
        ended = self.train("exits", "--in-process", "True", DRQ_ENV_FAULTS="100=dies")
        if self.status("exits") == "running":
            wrong.append(f"os._exit: exit code {ended.code}, status running")
        return "; ".join(wrong)

    def failing_disk(self) -> str:
        """9. A disk that fails in mid-run; a damaged newest checkpoint."""
        wrong = []
        full, home = self.folder / "broken-disk", self.folder / "home"
        home.mkdir()
        variables = {**disk.with_faults(home, full=full, errno=13), "DRQ_ENV_FAULTS": f"110=fills:{full}"}
        ended = self.train("home/run", "--in-process", "True", **variables)
        if ended.trouble or ended.code != 1:
            wrong.append(f"an error of the disk: {ended.trouble or f'exit code {ended.code}'}")
        if f"dr-q train --resume {home / 'run'}" not in ended.said:
            wrong.append("an error of the disk: no command to resume")
        run = self.trained()
        (run / "checkpoints" / "80" / "agents.safetensors").write_bytes(b"{")
        ended = self.resume(run.name)
        if ended.trouble or ended.code:
            wrong.append(f"a damaged newest checkpoint: exit code {ended.code}: {last_line(ended.err)}")
        return "; ".join(wrong)

    def huge_rewards(self) -> str:
        """10. Rewards of 1e20."""
        ended = self.train("generous", task=GENEROUS)
        return ended.trouble or ("" if "rewards as large as 1e+20" in ended.said else "not a word")


def _newest(chunk: Path) -> int:
    """The stamp of a chunk's newest transition, which is the second part of its name."""
    return int(chunk.name.split("-")[1])


def flags_of(settings: dict[str, Any]) -> list[Any]:
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]


def last_line(text: str) -> str:
    return ([line for line in text.splitlines() if line.strip(" ^~")] or [""])[-1][:200]


def wait_for(true: Callable[[], object], process: subprocess.Popen[str]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not true():
        if process.poll() is not None or time.monotonic() > until:
            return bool(true())
        time.sleep(0.02)
    return True


TEN: dict[str, Callable[[Faults], str]] = {
    "a disk full for a moment": Faults.full_for_a_moment,
    "flipped bits and swapped files": Faults.checksums,
    "a local sweep's addresses": Faults.listens_at_home,
    "values beyond their limits": Faults.limits,
    "simulators of a killed parent": Faults.orphans,
    "wrong fields in JSON": Faults.json_files,
    "a lost raylet": Faults.lost_raylet,
    "environments in process": Faults.in_process,
    "a failing disk, a damaged checkpoint": Faults.failing_disk,
    "huge rewards": Faults.huge_rewards,
}


def main() -> int:
    """Try all of them, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that has the package dr_q")
    parser.add_argument("--only", type=int, nargs="*", help="numbers from 1 to 10")
    options = parser.parse_args()
    held = True
    with tempfile.TemporaryDirectory(prefix="drq-ten-", ignore_cleanup_errors=True) as folder:
        faults = Faults(options.source.resolve(), Path(folder))
        for number, (name, fault) in enumerate(TEN.items(), start=1):
            if options.only and number not in options.only:
                continue
            wrong = fault(faults).replace(folder, "RUNS")
            held &= not wrong
            print(f"{number:2}. {name}: " + (f"did not hold: {wrong}" if wrong else "held"), flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
