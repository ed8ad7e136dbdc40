"""Commands about this machine: doctor, bench, version."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import dr_q
from dr_q.cli.options import argument, option, options_of, preset_file, use_presets
from dr_q.cli.output import say
from dr_q.config import MOST_STEPS, Config
from dr_q.kit.errors import FAILURE
from dr_q.settings import Execution, Settings


@dataclasses.dataclass(kw_only=True)
class Doctor:
    """Check what works on this machine; with a task, also the memory that a run needs; with a run, its files only."""

    task: str | None = argument(
        None,
        "a task: print the memory that a run of it needs; a run's folder: check its files",
        metavar="TASK|RUN",
    )
    preset: str = option("dr.q", "its preset")
    preset_file: Path | None = preset_file()
    run_settings: dict[str, Any] = options_of(Settings, "seeds", "steps")

    def run(self) -> int:
        """Examine."""
        from dr_q.diagnostics.doctor import examine, examine_run, memory_plan
        from dr_q.settings import make_settings

        use_presets(self.preset_file)
        of_run = self.task is not None and Path(self.task).is_dir()
        good = True
        for finding in examine_run(Path(self.task)) if self.task is not None and of_run else examine():
            mark = "ok  " if finding.ok else "--  "
            fix = "" if finding.ok else f"  ->  {finding.fix}"
            print(f"{mark}{finding.what}: {finding.found}{fix}", flush=True)
            good = good and finding.ok
        if of_run:
            return 0 if good else FAILURE
        if self.task is not None:
            settings = make_settings(self.task, preset_name=self.preset, **self.run_settings)
            print(f"{self.task}, {settings.seeds} seed{'s' if settings.seeds > 1 else ''}, {self.preset}:")
            for line in memory_plan(self.task, settings.seeds, self.preset, settings.steps):
                print(line)
        return 0


@dataclasses.dataclass(kw_only=True)
class Check:
    """Check an environment without training: `dr-q check my_robot:Reach-v0`.

    It makes, resets and steps the environment with random actions, checks spaces and values, and checks that a second
    environment gives the same results. A new run starts with a shorter form of this check.
    """

    task: str = argument(help="any task that `dr-q train` takes", metavar="TASK")
    steps: int = option(500, "random steps to take", least=1, most=MOST_STEPS)

    def run(self) -> int:
        """Check."""
        from dr_q.diagnostics.check import check_env

        good, more = True, ""
        for finding in check_env(self.task, self.steps):
            fix = "" if finding.ok else f"  ->  {finding.fix}"
            mark = "ok  " if finding.ok else "!   " if finding.warning else "--  "
            print(f"{mark}{finding.what}: {finding.found}{fix}", flush=True)
            good = good and (finding.ok or finding.warning)
            more = more if finding.ok else "; look at what is marked with !"
        print(f"{self.task} can be trained on" + (more if good else ", once what is marked with -- is fixed"))
        return 0 if good else FAILURE


@dataclasses.dataclass(kw_only=True)
class Bench:
    """Measure this machine's throughput by part, as a table to paste into an issue."""

    task: str = argument("dmc/cheetah-run", "any task that `dr-q train` takes", metavar="TASK")
    steps: int = option(1_000, "agent steps to time, after exploration", least=1, most=MOST_STEPS)
    preset: str = option("dr.q", "networks and batch size are this preset's")
    preset_file: Path | None = preset_file()
    with_evaluation: bool = option(False, "also time 5,000 steps with one evaluation, the paper's schedule")
    json: Path | None = option(None, "a file to write the numbers to as well", metavar="FILE")
    run_settings: dict[str, Any] = options_of(Settings, "seeds", "num_envs")
    execution: dict[str, bool] = options_of(Execution, "in_process")
    algorithm: dict[str, Any] = options_of(Config, "replay_capacity", by_preset=True)

    def run(self) -> int:
        """Measure."""
        from dr_q.diagnostics.bench import bench
        from dr_q.settings import make_settings

        use_presets(self.preset_file)
        if self.json is not None:
            self.json.parent.mkdir(parents=True, exist_ok=True)  # before minutes of measuring
        settings = make_settings(self.task, preset_name=self.preset, changes=self.algorithm, **self.run_settings)
        if self.algorithm:  # slots that a run could not fill are not allocated
            settings = dataclasses.replace(settings, steps=max(settings.steps, settings.config.replay_capacity))
        figures = bench(
            settings,
            self.steps,
            in_process=self.execution.get("in_process"),
            with_evaluation=self.with_evaluation,
            say=say,
        )
        print(figures.markdown())
        if self.json is not None:
            self.json.write_text(json.dumps(dataclasses.asdict(figures), indent=1) + "\n")
        return 0


@dataclasses.dataclass(kw_only=True)
class Version:
    """Print the version."""

    def run(self) -> int:
        """Print it."""
        print(dr_q.__version__)
        return 0
