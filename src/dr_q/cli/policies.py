"""Commands on trained policies: eval, video, export."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dr_q.cli.options import at_least, named, optional, say
from dr_q.run.settings import EVAL_EPISODES

if TYPE_CHECKING:
    from dr_q.run.policy import Policy


@dataclasses.dataclass
class Eval:
    """Evaluate a trained policy on fresh episodes."""

    run_folder: named(Path, "DIR")  # pyright: ignore
    """A run's folder, or a policy folder."""
    seed: optional(int, "SEED") = None  # pyright: ignore
    """Which seed's policy. [the best at the last evaluation]"""
    episodes: int = EVAL_EPISODES
    """How many episodes."""

    def run(self) -> int:
        """Evaluate and compare with random and paper."""
        from dr_q.run.watch import beside_the_paper, evaluate_policy, returns_text

        policy, returns = evaluate_policy(self.run_folder, self.seed, self.episodes)
        chosen = _which(policy, self.seed)
        print(
            f"{policy.task}, {chosen}, {policy.agent_steps:,} agent steps: "
            f"return {returns_text(returns)} over {len(returns)} episode{'s' if len(returns) > 1 else ''}"
        )
        line = beside_the_paper(policy.task, float(returns.mean()), self.episodes, list(policy.returns.values()))
        if line:
            print(line)
        return 0


@dataclasses.dataclass
class Video:
    """Record one episode of a trained policy as an MP4 that plays as fast as the simulated time."""

    run_folder: named(Path, "DIR")  # pyright: ignore
    """A run's folder, or a policy folder."""
    out: optional(Path, "FILE") = None  # pyright: ignore
    """Where to write it. [RUN/video.mp4]"""
    seed: optional(int, "SEED") = None  # pyright: ignore
    """Which seed's policy. [the best at the last evaluation]"""

    def run(self) -> int:
        """Record."""
        from dr_q.run.watch import record_video

        out = self.out or self.run_folder / "video.mp4"
        done = record_video(self.run_folder, out, self.seed, say)
        chosen = _which(done.policy, self.seed)
        length = f"{done.frames / done.frames_per_second:.1f} s at {done.frames_per_second:.3g} frames/s"
        print(f"{out}: {done.policy.task}, {chosen}, return {done.total:.1f}, {length}")
        return 0


@dataclasses.dataclass
class Export:
    """Write one policy of a run to a folder to give away: weights in few bytes, and a model card."""

    run_folder: named(Path, "DIR")  # pyright: ignore
    """A run's folder, or a policy folder."""
    out: Path
    """The new folder."""
    seed: optional(int, "SEED") = None  # pyright: ignore
    """Which seed's policy. [the best at the last evaluation]"""
    precision: Literal["float16", "float32"] = "float16"
    """Of the weights."""
    episodes: int = EVAL_EPISODES
    """Fresh episodes with the weights as they were written, for the card; 0 plays none."""

    def run(self) -> int:
        """Export."""
        from dr_q.run.export import export_policy
        from dr_q.run.watch import returns_text

        at_least("episodes", self.episodes, 0)
        done = export_policy(self.run_folder, self.out, self.seed, self.precision, self.episodes)
        played = "" if done.returns is None else f", return {returns_text(done.returns)}"
        print(f"{done.folder}: seed {done.seed}, {self.precision}, {done.size / 2**20:.1f} MiB{played}")
        return 0


def _which(policy: "Policy", asked: int | None) -> str:
    several = len(policy.returns) > 1
    return f"seed {policy.seed}" + (" (best last evaluation)" if several and asked is None else "")
