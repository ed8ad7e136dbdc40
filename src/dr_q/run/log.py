"""What a run writes and shows: run.json, CSV files, TensorBoard, W&B, and a line or a bar of progress."""

import contextlib
import csv
import dataclasses
import importlib.metadata
import json
import platform
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import dr_q
from dr_q.config import changed_settings
from dr_q.envs import humanoid_bench
from dr_q.paper import paper_tasks, published_score
from dr_q.run.evaluate import Evaluation
from dr_q.run.files import write_whole
from dr_q.run.plan import Plan
from dr_q.run.settings import Settings
from dr_q.run.source import source_digest

EVAL_COLUMNS = Evaluation._fields
_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco", "dm-control")


def versions(task: str = "") -> dict[str, str]:
    """What a run of this task ran on; HumanoidBench, which has no releases, by a digest of its source."""
    found = {"dr-q": dr_q.__version__, "source": source_digest(), "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    bench = humanoid_bench.package_folder() if task.startswith("hbench/") else None
    if bench is not None:
        found["humanoid-bench"] = source_digest(bench)
    found["device"] = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return found


class RunFiles:
    """A run's folder: run.json, evals.csv, metrics.csv."""

    def __init__(self, folder: Path, settings: Settings):
        self.folder = folder
        self._settings = settings
        self._start = time.perf_counter()
        self._seconds_before = 0.0
        self._versions_before: list[dict[str, Any]] = []
        self._changed = changed_settings(settings.preset, dataclasses.asdict(settings.config))

    def go_on(self, agent_steps: int) -> None:
        """Count the time of the run that is in the folder already; keep what it ran on, if that was something else."""
        path = self.folder / "run.json"
        if not path.exists():
            return
        before = json.loads(path.read_text())
        self._seconds_before = float(before.get("seconds", 0.0))
        self._changed = before.get("changed", self._changed)  # presets may since have changed themselves
        parts = [*before.get("earlier_versions", []), {"until": agent_steps, **before["versions"]}]
        ends = [part["until"] for part in parts]
        begins = [0, *ends]
        # What a part did beyond the checkpoint is done again.
        parts = [{**part, "until": min(end, agent_steps)} for part, end in zip(parts, ends, strict=True)]
        parts = [part for part, begin in zip(parts, begins[:-1], strict=True) if part["until"] > begin]
        if parts and parts[-1] == {"until": agent_steps, **versions(self._settings.task_name)}:
            parts.pop()
        self._versions_before = parts

    def write_status(self, status: str, agent_steps: int, **more: Any) -> None:
        """Write run.json; its seconds are those of all processes that worked on it."""
        record = {
            "status": status,
            "agent_steps": agent_steps,
            "settings": self._settings.to_json(),
            "changed": self._changed,
            "seeds": self._settings.seed_list,
            "versions": versions(self._settings.task_name),
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seconds": round(self._seconds_before + time.perf_counter() - self._start, 1),
            **({"earlier_versions": self._versions_before} if self._versions_before else {}),
            **more,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "run.json", json.dumps(record, indent=1) + "\n")

    def append_evaluations(self, evaluations: Iterable[Evaluation]) -> None:
        """Rows of evals.csv."""
        self._append("evals.csv", EVAL_COLUMNS, [list(e) for e in evaluations])

    def append_metrics(self, columns: Sequence[str], rows: list[list[Any]]) -> None:
        """Rows of metrics.csv."""
        self._append("metrics.csv", columns, rows)

    def drop_after(self, agent_steps: int) -> None:
        """Forget rows that a checkpoint has not seen."""
        for name in ("evals.csv", "metrics.csv"):
            path = self.folder / name
            if not path.exists():
                continue
            header, *rows = path.read_text().splitlines() or [""]
            if not header:  # killed before its first row was written
                path.unlink()
                continue
            column = header.split(",").index("agent_steps")
            width = header.count(",")
            kept = [row for row in rows if row.count(",") == width and int(row.split(",")[column]) <= agent_steps]
            write_whole(path, "\n".join([header, *kept]) + "\n")

    def _append(self, name: str, columns: Sequence[str], rows: list[list[Any]]) -> None:
        path = self.folder / name
        head = self._with_columns(path, columns)
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, head, restval="", lineterminator="\n")
            writer.writerows(dict(zip(columns, row, strict=True)) for row in rows)

    def _with_columns(self, path: Path, columns: Sequence[str]) -> list[str]:
        """The file's columns, these among them: a file begun by an older version gets those that it lacks."""
        head: list[str] = []
        before: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                head = list(reader.fieldnames or [])
                if set(columns) <= set(head):
                    return head
                before = list(reader)
        head += [column for column in columns if column not in head]
        part = path.with_name(path.name + ".part")
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, head, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(before)
        part.replace(path)
        return head


class Boards:
    """TensorBoard always, W&B where asked for."""

    def __init__(self, folder: Path, settings: Settings, wandb: bool, purge_from: int | None = None):
        """What a run that is resumed logged from step `purge_from` on, before, is not shown any more."""
        from tensorboardX import SummaryWriter

        self._wandb: Any = None
        if wandb:
            try:
                import wandb as library  # pyright: ignore[reportMissingImports]
            except ImportError as error:
                raise dr_q.ConfigError(
                    "--wandb needs wandb, which is not installed: pip install 'dr-q[wandb]'"
                ) from error
            known = folder / "wandb_id"  # a resumed run goes on there too
            if not known.exists():
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(known, uuid.uuid4().hex)
            named = {"project": "dr-q", "name": folder.name, "id": known.read_text(), "resume": "allow"}
            self._wandb = library.init(**named, dir=str(folder), config=settings.to_json())
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge_from)

    def scalars(self, values: dict[str, float], agent_steps: int) -> None:
        """Values at a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, agent_steps)
        if self._wandb is not None:
            self._wandb.log({**values, "agent_steps": agent_steps})

    def close(self) -> None:
        """Flush everything."""
        self._writer.close()
        if self._wandb is not None:
            self._wandb.finish()


class Display:
    """A bar in a terminal, plain lines elsewhere."""

    def __init__(self, settings: Settings, quiet: bool = False):
        self._settings = settings
        self._console = Console(stderr=False, soft_wrap=True)
        self._quiet = quiet
        self._progress: Progress | None = None
        self._bar: Any = None
        self._first: tuple[float, int] | None = None
        score = published_score(settings.task_name)
        self._published = f", paper {score.mean:g} at {settings_budget(settings):,}" if score else ""
        if not quiet and self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[last]}"),
                console=self._console,
            )
            self._bar = self._progress.add_task(settings.task_name, total=settings.steps, rate="", last="")

    def start(self) -> None:
        """Show the bar, in a terminal."""
        if self._progress is not None:
            self._progress.start()

    def say(self, text: str) -> None:
        """A line."""
        if not self._quiet:
            self._console.print(text, highlight=False, markup=False)

    def plan(self, plan: Plan) -> None:
        """What goes where; only how much in all where everything is in one memory."""
        one_memory = jax.default_backend() == "cpu" and not plan.task.frames_on_host
        for line in plan.lines()[: 1 if one_memory else None]:
            self.say(line)

    def say_on_device(self, text: str) -> None:
        """A line that concerns those who run on a GPU."""
        if jax.default_backend() != "cpu":
            self.say(text)

    def step(self, agent_steps: int) -> None:
        """Where the run is."""
        now = time.perf_counter()
        if agent_steps < self._settings.config.exploration_steps:  # which says nothing of how fast it will learn
            if self._progress is not None:
                self._progress.update(self._bar, completed=agent_steps, rate="exploring")
            return
        if self._first is None:
            self._first = (now, agent_steps)
        if self._progress is not None:
            known = now - self._first[0] > 1
            self._progress.update(self._bar, completed=agent_steps, rate=self._rate(agent_steps) if known else "")

    def evaluation(self, evaluations: Sequence[Evaluation]) -> None:
        """The last evaluation of each seed."""
        scores = " ".join(f"{e.return_mean:.0f}" for e in evaluations)
        mean = sum(e.return_mean for e in evaluations) / len(evaluations)
        if self._progress is not None:
            self._progress.update(self._bar, last=f"return {scores}{self._published}")
        exploring = 0 < evaluations[0].agent_steps <= self._settings.config.exploration_steps
        rate = ", exploring" if exploring else ""
        if self._first is not None and evaluations[0].agent_steps > self._first[1]:
            rate = f", {self._rate(evaluations[0].agent_steps)}"
        self.say(
            f"step {evaluations[0].agent_steps:,} of {self._settings.steps:,}: return {mean:.1f}"
            + (f" (seeds: {scores})" if len(evaluations) > 1 else "")
            + f"{self._published}{rate}"
        )

    def _rate(self, agent_steps: int) -> str:
        """Since learning began: how fast, and how long it will take."""
        assert self._first is not None
        done, seconds = agent_steps - self._first[1], time.perf_counter() - self._first[0]
        if not done:
            return ""
        left = (self._settings.steps - agent_steps) * seconds / done
        return f"{done * self._settings.seeds / seconds:,.0f} seed-steps/s, {_duration(left)} left"

    def close(self) -> None:
        """End the bar."""
        if self._progress is not None:
            self._progress.stop()
        sys.stdout.flush()


def settings_budget(settings: Settings) -> int:
    """The paper's budget of the task, for the line that names its score."""
    known = paper_tasks().get(settings.task_name)
    return known.agent_steps if known else settings.steps


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
