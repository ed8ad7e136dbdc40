"""Commands about this machine: doctor, bench, version."""

import dataclasses
import json
from pathlib import Path

import tyro

import dr_q
from dr_q.agent import ConfigError
from dr_q.cli.options import named, optional, say


@dataclasses.dataclass
class Doctor:
    """Say what works on this machine, what does not and how to mend it; with a task, what memory a run needs."""

    task: tyro.conf.Positional[optional(str, "TASK")] = None  # pyright: ignore
    """A task: how much memory a run of it takes."""
    seeds: int = 1
    """Seeds of that run."""
    preset: str = "dr.q"
    """Its preset."""
    steps: optional(int, "N") = None  # pyright: ignore
    """Its agent steps. [the paper's budget]"""

    def run(self) -> int:
        """Examine."""
        from dr_q.run.doctor import examine, memory_plan

        for finding in examine():
            mark = "ok  " if finding.ok else "--  "
            fix = "" if finding.ok else f"  ->  {finding.fix}"
            print(f"{mark}{finding.what}: {finding.found}{fix}", flush=True)
        if self.task is not None:
            print(f"{self.task}, {self.seeds} seed{'s' if self.seeds > 1 else ''}, {self.preset}:")
            for line in memory_plan(self.task, self.seeds, self.preset, self.steps):
                print(line)
        return 0


@dataclasses.dataclass
class Bench:
    """Measure this machine's throughput by part, as a table to paste into an issue."""

    task: named(str, "[TASK]") = "dmc/cheetah-run"  # pyright: ignore
    """Any task that `dr-q train` takes."""
    seeds: int = 1
    """Seeds trained at once."""
    steps: int = 1_000
    """Agent steps to time, after exploration."""
    preset: str = "dr.q"
    """Whose networks and batch."""
    replay_capacity: optional(int, "N") = None  # pyright: ignore
    """Slots of the replay. [the preset's, or what the paper's budget fills]"""
    with_evaluation: bool = False
    """Also time 5,000 steps with one evaluation, the paper's schedule."""
    in_process: optional(bool, "{True,False}") = None  # pyright: ignore
    """Simulate in this process. [yes with one seed, else a process for each]"""
    json: optional(Path, "FILE") = None  # pyright: ignore
    """Where to write the figures too."""

    def run(self) -> int:
        """Measure."""
        from dr_q.run.bench import bench
        from dr_q.run.settings import make_settings

        if self.steps < 1:
            raise ConfigError(f"steps must be at least 1, got {self.steps}")
        if self.json is not None:
            self.json.parent.mkdir(parents=True, exist_ok=True)  # before minutes of measuring
        changes = {} if self.replay_capacity is None else {"replay_capacity": self.replay_capacity}
        settings = make_settings(self.task, preset_name=self.preset, seeds=self.seeds, changes=changes)
        if self.replay_capacity is not None:
            settings = dataclasses.replace(settings, steps=max(settings.steps, self.replay_capacity))
        figures = bench(
            settings,
            self.steps,
            in_process=self.in_process,
            with_evaluation=self.with_evaluation,
            say=say,
        )
        print(figures.markdown())
        if self.json is not None:
            self.json.write_text(json.dumps(dataclasses.asdict(figures), indent=1) + "\n")
        return 0


@dataclasses.dataclass
class Version:
    """Print the version."""

    def run(self) -> int:
        """Print it."""
        print(dr_q.__version__)
        return 0
