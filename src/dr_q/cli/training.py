"""The command train."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from dr_q.cli.options import argument, option, options_of, preset_file, use_presets
from dr_q.config import Config
from dr_q.settings import Execution, Settings


@dataclasses.dataclass(kw_only=True)
class Train:
    """Train on a task: `dr-q train dmc/walker-walk --seeds 5`. Resume a run: `dr-q train --resume runs/NAME`."""

    task: str | None = argument(
        None,
        "a task: gym/Ant-v4, dmc/walker-run, dmc-visual/walker-run, hbench/h1-walk-v0; or a Gymnasium id: gym/ID, "
        "module:ID",
        metavar="TASK",
    )
    preset: str | None = option(
        None, "which algorithm; `dr-q presets` lists them; several with +: quick+no-infonce", otherwise="dr.q"
    )
    preset_file: Path | None = preset_file()
    out: Path | None = option(
        None, "the run's folder, new or empty", metavar="DIR", otherwise="runs/TASK-PRESET-seedsFIRST-LAST"
    )
    resume: Path | None = option(
        None,
        "resume the run in this folder, with its own settings; --steps may grow, --stop-at-return and --patience may "
        "change",
        metavar="DIR",
    )
    new_environment: bool = option(
        False,
        "with --resume: continue in another environment, TASK, with spaces of the same sizes; the open episodes are "
        "closed as truncated",
    )
    run_settings: dict[str, Any] = options_of(Settings)
    execution: dict[str, Any] = options_of(Execution)
    algorithm: dict[str, Any] = options_of(Config, by_preset=True)

    def run(self) -> int:
        """Train."""
        started = time.monotonic()  # before libraries are loaded
        from dr_q.training import api
        from dr_q.training.display import silence_output

        use_presets(self.preset_file)
        outcome = api.train(
            self.task,
            preset=self.preset,
            out=self.out,
            resume=self.resume,
            new_environment=self.new_environment,
            may_exit=True,
            started=started,
            **self.run_settings,
            **self.execution,
            **self.algorithm,
        )
        try:
            print(f"{outcome.status}: {outcome.folder}", flush=True)
        except OSError:  # a full disk under a log, or no reader: the run has ended as it says all the same
            silence_output()
        return 128 + outcome.signal if outcome.signal else 0
