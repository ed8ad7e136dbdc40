"""The command train."""

import dataclasses
from pathlib import Path

import tyro

from dr_q.cli.options import AllSettings, given_settings, optional


@dataclasses.dataclass
class Train:
    """Train on a task: `dr-q train dmc/walker-walk --seeds 5`, or go on: `dr-q train --resume runs/NAME`."""

    task: tyro.conf.Positional[optional(str, "TASK")] = None  # pyright: ignore
    """gym/Ant-v4, dmc/walker-run, dmc-visual/walker-run, hbench/h1-walk-v0, or any Gymnasium id: gym/ID, module:ID."""
    preset: optional(str, "NAME") = None  # pyright: ignore
    """Which algorithm; `dr-q presets` lists them. [dr.q]"""
    seeds: optional(int, "N") = None  # pyright: ignore
    """How many seeds to train at once. [1]"""
    seed: optional(int, "FIRST") = None  # pyright: ignore
    """The first seed. [0]"""
    steps: optional(int, "N") = None  # pyright: ignore
    """Agent steps of each seed. [the paper's budget; 500,000 for other tasks]"""
    out: optional(Path, "DIR") = None  # pyright: ignore
    """The run's folder, new or empty. [runs/TASK-PRESET-SEEDS]"""
    resume: optional(Path, "DIR") = None  # pyright: ignore
    """Go on with the run in this folder, with its own settings; --steps may grow."""
    eval_every: optional(int, "N") = None  # pyright: ignore
    """Agent steps between evaluations. [5000]"""
    eval_episodes: optional(int, "N") = None  # pyright: ignore
    """Episodes of each evaluation. [10]"""
    checkpoint_every: optional(int, "N") = None  # pyright: ignore
    """Agent steps between checkpoints. [25000]"""
    keep: optional(int, "N") = None  # pyright: ignore
    """Checkpoints to keep. [2]"""
    stop_after: optional(float, "MINUTES") = None  # pyright: ignore
    """Minutes after which to write a checkpoint and stop, with exit code 0."""
    noise_dims: optional(int, "N") = None  # pyright: ignore
    """Dimensions of Gaussian noise appended to each observation; the paper's study: 50. [0]"""
    in_process: optional(bool, "{True,False}") = None  # pyright: ignore
    """Simulate in this process. [yes with one seed, else a process for each]"""
    background_evaluation: optional(bool, "{True,False}") = None  # pyright: ignore
    """Evaluate while training goes on. [yes on a GPU, if cores are left]"""
    device_memory: optional(float, "GIB") = None  # pyright: ignore
    """Memory of each device to fill at most; observations that do not fit go to host memory. [all]"""
    wandb: bool = False
    """Log to Weights & Biases too."""
    algorithm: tyro.conf.OmitArgPrefixes[AllSettings] = dataclasses.field(default_factory=AllSettings)  # pyright: ignore

    def run(self) -> int:
        """Train."""
        from dr_q.run import api

        given = {
            name: getattr(self, name)
            for name in ("eval_every", "eval_episodes", "checkpoint_every", "keep", "noise_dims")
            if getattr(self, name) is not None
        }
        given |= given_settings(self.algorithm)
        if self.resume is not None:
            asked = {"preset": self.preset, "seeds": self.seeds, "first_seed": self.seed, **given}
            api.refuse_changes(self.resume, self.task, asked, self.out)
            given = {}
        else:
            seeds = 1 if self.seeds is None else self.seeds
            given |= {"preset": self.preset or "dr.q", "seeds": seeds, "seed": self.seed or 0, "out": self.out}
        outcome = api.train(
            self.task if self.resume is None else None,
            steps=self.steps,
            resume=self.resume,
            stop_after=self.stop_after,
            wandb=self.wandb,
            in_process=self.in_process,
            background_evaluation=self.background_evaluation,
            device_memory=self.device_memory,
            may_exit=True,
            **given,
        )
        print(f"{outcome.status}: {outcome.folder}")
        return 128 + outcome.signal if outcome.signal else 0
