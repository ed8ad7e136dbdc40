"""Commands on trained policies: eval, video, export."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dr_q.cli.options import argument, option
from dr_q.cli.output import say
from dr_q.settings import EVAL_EPISODES, LARGEST_SEED

if TYPE_CHECKING:
    from dr_q.policies.policy import Policy


@dataclasses.dataclass(kw_only=True)
class Eval:
    """Evaluate a trained policy on fresh episodes."""

    run_folder: Path = argument(help="a run's folder, or a policy folder", metavar="DIR")
    seed: int | None = option(
        None,
        "which seed's policy",
        metavar="SEED", least=0, most=LARGEST_SEED, otherwise="the best at the last evaluation",
    )  # fmt: skip
    episodes: int = option(EVAL_EPISODES, "number of episodes", least=1, most=100_000)

    def run(self) -> int:
        """Evaluate, and compare with random actions and the paper."""
        from dr_q.policies.watch import compared_with_the_paper, evaluate_policy, returns_text

        policy, returns = evaluate_policy(self.run_folder, self.seed, self.episodes)
        chosen = _which(policy, self.seed)
        print(
            f"{policy.task}, {chosen}, {policy.agent_steps:,} agent steps: "
            f"return {returns_text(returns)} over {len(returns)} episode{'s' if len(returns) > 1 else ''}"
        )
        line = compared_with_the_paper(policy.task, float(returns.mean()), self.episodes, list(policy.returns.values()))
        if line:
            print(line)
        return 0


@dataclasses.dataclass(kw_only=True)
class Video:
    """Record one episode of a trained policy as an MP4 file that plays in simulated time."""

    run_folder: Path = argument(help="a run's folder, or a policy folder", metavar="DIR")
    out: Path | None = option(None, "the file to write", metavar="FILE", otherwise="DIR/video.mp4")
    seed: int | None = option(
        None,
        "which seed's policy",
        metavar="SEED", least=0, most=LARGEST_SEED, otherwise="the best at the last evaluation",
    )  # fmt: skip

    def run(self) -> int:
        """Record."""
        from dr_q.policies.watch import record_video

        out = self.out or self.run_folder / "video.mp4"
        done = record_video(self.run_folder, out, self.seed, say)
        chosen = _which(done.policy, self.seed)
        length = f"{done.frames / done.frames_per_second:.1f} s at {done.frames_per_second:.3g} frames/s"
        print(f"{out}: {done.policy.task}, {chosen}, return {done.total:.1f}, {length}")
        return 0


@dataclasses.dataclass(kw_only=True)
class Export:
    """Write one policy of a run to a folder to share: small weights and a model card."""

    run_folder: Path = argument(help="a run's folder, or a policy folder", metavar="DIR")
    out: Path = option(help="the new folder", metavar="PATH")
    seed: int | None = option(
        None,
        "which seed's policy",
        metavar="SEED", least=0, most=LARGEST_SEED, otherwise="the best at the last evaluation",
    )  # fmt: skip
    precision: Literal["float16", "float32"] = option("float16", "of the weights")
    episodes: int = option(
        EVAL_EPISODES,
        "fresh episodes played with the written weights, for the model card; 0 for none",
        least=0,
        most=100_000,
    )

    def run(self) -> int:
        """Export."""
        from dr_q.policies.export import export_policy
        from dr_q.policies.watch import returns_text

        done = export_policy(self.run_folder, self.out, self.seed, self.precision, self.episodes)
        played = "" if done.returns is None else f", return {returns_text(done.returns)}"
        print(f"{done.folder}: seed {done.seed}, {self.precision}, {done.size / 2**20:.1f} MiB{played}")
        return 0


def _which(policy: "Policy", asked: int | None) -> str:
    several = len(policy.returns) > 1
    return f"seed {policy.seed}" + (" (best last evaluation)" if several and asked is None else "")
