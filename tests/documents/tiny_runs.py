"""Runs that are tiny, whatever a page asks for: few steps, small networks, at most two tasks, seeds and trials.

Files of a block that are not in the page come from a comment right before it: `<!-- given: COMMAND -->`.
"""

import json
import os
import sys
from typing import Any

GIVEN = json.loads(os.environ.get("DRQ_TINY", "{}"))
"""`settings` of the config and the schedule, and `steps`."""
MOST = 2
"""Tasks of a sweep, seeds of each, and trials of a search."""


def shortened(settings: set[str], resumed: bool) -> dict[str, Any]:
    """What to set instead of what was asked for."""
    if resumed:
        return {"steps": 2 * GIVEN["steps"]} if "steps" in settings else {}
    seeds = {"seeds": MOST} if "seeds" in settings else {}
    return {**GIVEN["settings"], "steps": GIVEN["steps"], **seeds}


def tiny_train() -> None:
    """Make `dr_q.train` tiny."""
    import dr_q

    train = dr_q.train

    def run(*arguments: Any, **settings: Any) -> Any:
        return train(*arguments, **{**settings, **shortened(set(settings), "resume" in settings)})

    dr_q.train = run


def tiny_sweeps() -> None:
    """Make sweeps, experiments and searches tiny."""
    from dr_q.config import Config, settings_of
    from dr_q.sweep.spec import SweepSpec
    from dr_q.sweep.tune import TuneOptions

    check, schedule = SweepSpec.__post_init__, {"eval_every", "eval_episodes"}

    def smaller(self: Any) -> None:
        config = {name: x for name, x in GIVEN["settings"].items() if name in settings_of(Config)}
        given = {"steps": GIVEN["steps"], "seeds": min(self.seeds, MOST), "checkpoint_every": GIVEN["steps"]}
        given |= {name: GIVEN["settings"][name] for name in schedule}
        given["changes"] = {**self.changes, **{name: x for name, x in config.items() if name not in self.grid}}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        check(self)
        here = [task for task in self.tasks if not task.startswith("hbench/")]  # HumanoidBench is on no registry
        object.__setattr__(self, "tasks", tuple(here[:MOST]) or self.tasks[:MOST])

    def fewer(self: Any) -> None:
        object.__setattr__(self, "trials", min(self.trials, MOST))

    SweepSpec.__post_init__, TuneOptions.__post_init__ = smaller, fewer


def command() -> None:
    """`dr-q`, with runs that are tiny."""
    from dr_q.cli import main

    tiny_sweeps()
    words = sys.argv[1:]
    asked = {word.lstrip("-").replace("-", "_") for word in words if word.startswith("--")}
    changes: dict[str, Any] = {}
    if words[0] == "train":
        changes = shortened(asked, "resume" in asked)
    elif words[0] == "bench":
        schedule = {"eval_every", "eval_episodes", "exploration_steps", "target_period"}
        changes = {name: x for name, x in shortened(asked, False).items() if name not in schedule}
    for name, value in changes.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    sys.exit(main(words))
