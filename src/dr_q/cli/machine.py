"""Commands about this machine: doctor, check, bench, version."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import dr_q
from dr_q.cli.options import argument, option, options_of, preset_file, use_presets
from dr_q.cli.output import say
from dr_q.config import MOST_STEPS, Config
from dr_q.kit import check_can_write, output_file
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
        from dr_q.diagnostics.doctor import check_task, examine, examine_run, memory_plan
        from dr_q.settings import make_settings

        use_presets(self.preset_file)
        if self.task is not None and os.path.isdir(self.task):  # noqa: PTH112 - False, too, for what can be no path
            findings = list(map(_printed, examine_run(Path(self.task))))
            return 0 if all(finding.ok for finding in findings) else FAILURE
        settings = None
        if self.task is not None:  # before half a minute of looking at other things
            settings = make_settings(self.task, preset_name=self.preset, **self.run_settings)
            check_task(self.task)
        for finding in examine():
            _printed(finding)
        if self.task is not None and settings is not None:
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
    execution: dict[str, Any] = options_of(Execution, "env_timeout")

    def run(self) -> int:
        """Check."""
        from dr_q.diagnostics.check import look_at_env

        def give_up(finding: Any) -> None:
            """The environment cannot be interrupted: so the process ends."""
            _printed(finding)
            self._print_last([finding])
            os._exit(FAILURE)

        timeout, found = float(Execution(**self.execution).env_timeout), []
        for finding in look_at_env(self.task, self.steps, timeout, give_up):
            found.append(_printed(finding))
        good = self._print_last(found)
        return 0 if good else FAILURE

    def _print_last(self, findings: list[Any]) -> bool:
        """Whether it can be trained on, and print that."""
        good = all(finding.ok or finding.warning for finding in findings)
        more = "" if all(finding.ok for finding in findings) else "; look at what is marked with !"
        can = f"can be trained on{more}" if good else "cannot be trained on before what is marked with -- is fixed"
        print(f"{self.task} {can}", flush=True)
        return good


def _printed(finding: Any) -> Any:
    print(finding, flush=True)
    return finding


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
    algorithm: dict[str, Any] = options_of(Config, "compute", "replay_capacity", by_preset=True)

    def run(self) -> int:
        """Measure."""
        from dr_q.diagnostics.bench import bench
        from dr_q.settings import make_settings

        use_presets(self.preset_file)
        if self.json is not None:
            check_can_write(self.json)  # before minutes of measuring
        settings = make_settings(self.task, preset_name=self.preset, changes=self.algorithm, **self.run_settings)
        if "replay_capacity" in self.algorithm:  # slots that a run could not fill are not allocated
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
            self.json.parent.mkdir(parents=True, exist_ok=True)
            with output_file(self.json) as part:
                part.write_text(json.dumps(dataclasses.asdict(figures), indent=1) + "\n")
        return 0


@dataclasses.dataclass(kw_only=True)
class Version:
    """Print the version."""

    def run(self) -> int:
        """Print it."""
        print(dr_q.__version__)
        return 0
