"""Commands on trained policies: eval, video, export, import-authors."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dr_q.cli.options import argument, option
from dr_q.cli.output import say
from dr_q.config import MOST_STEPS
from dr_q.kit import check_can_write
from dr_q.run_folder import policy_folder
from dr_q.settings import EVAL_EPISODES, LARGEST_SEED

if TYPE_CHECKING:
    from dr_q.policies.policy import Policy

Which = Literal["last", "best"]


def which_option() -> Any:
    """Declare `--which`."""
    return option("last", "as of the last evaluation, or as of the seed's best one over time", choices=("last", "best"))


@dataclasses.dataclass(kw_only=True)
class Eval:
    """Evaluate a trained policy on fresh episodes."""

    run_folder: Path = argument(help="a run's folder, or a policy folder", metavar="DIR")
    seed: int | None = option(
        None,
        "which seed's policy",
        metavar="SEED", least=0, most=LARGEST_SEED, otherwise="the best at the last evaluation",
    )  # fmt: skip
    which: Which = which_option()
    episodes: int = option(EVAL_EPISODES, "number of episodes", least=1, most=100_000)

    def run(self) -> int:
        """Evaluate, and compare with random actions and the paper."""
        from dr_q.policies.watch import compared_with_the_paper, evaluate_policy

        policy, played = evaluate_policy(policy_folder(self.run_folder, self.which), self.seed, self.episodes)
        chosen = _which(policy, self.seed)
        print(f"{policy.task}, {chosen}, {policy.agent_steps:,} agent steps: return {played}")
        of_seeds = list((policy.fresh_returns or policy.returns).values())
        line = compared_with_the_paper(policy.task, float(played.returns.mean()), self.episodes, of_seeds)
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
    which: Which = which_option()

    def run(self) -> int:
        """Record."""
        from dr_q.policies.watch import record_video

        out = self.out or self.run_folder / "video.mp4"
        policy = policy_folder(self.run_folder, self.which)
        check_can_write(out)
        done = record_video(policy, out, self.seed, say)
        chosen = _which(done.policy, self.seed)
        length = f"{done.frames / done.frames_per_second:.1f} s at {done.frames_per_second:.3g} frames/s"
        print(f"{out}: {done.policy.task}, {chosen}, return {done.total:.1f}, {length}")
        return 0


@dataclasses.dataclass(kw_only=True)
class Export:
    """Write one policy of a run to a folder, to share or to run elsewhere, with a model card."""

    run_folder: Path = argument(help="a run's folder, or a policy folder", metavar="DIR")
    out: Path = option(help="the new folder", metavar="PATH")
    seed: int | None = option(
        None,
        "which seed's policy",
        metavar="SEED", least=0, most=LARGEST_SEED, otherwise="the best at the last evaluation",
    )  # fmt: skip
    which: Which = which_option()
    format: Literal["safetensors", "onnx", "numpy", "torch"] = option(
        "safetensors", "safetensors for dr-q itself; the others run without dr-q and JAX"
    )
    precision: Literal["float32", "float16"] = option(
        "float32", "precision of the stored weights; actions are computed in float32"
    )
    episodes: int = option(
        EVAL_EPISODES,
        "fresh episodes played with the written weights, for the model card; 0 for none",
        least=0,
        most=100_000,
    )

    def run(self) -> int:
        """Export."""
        from dr_q.policies.export import export_policy

        words = (self.seed, self.precision, self.episodes, self.format, self.which)
        done = export_policy(self.run_folder, self.out, *words)
        played = "" if done.played is None else f", return {done.played}"
        rounded = "" if done.rounding is None else f"; float16 changed actions by at most {done.rounding:.1e}"
        print(f"{done.folder}: {self.format}, seed {done.seed}, {self.precision}, {done.size / 2**20:.1f} MiB{played}")
        print(f"largest difference from dr-q's own actions {done.difference:.1e}{rounded}; {done.latency}")
        return 0


@dataclasses.dataclass(kw_only=True)
class ImportAuthors:
    """Read an agent that the authors' code saved (encoder.pt, policy.pt), for eval, video, export and training."""

    folder: Path = argument(help="the folder that the authors' Agent.save wrote to", metavar="DIR")
    task: str = option(help="the task that it was trained on, by our name: dr-q tasks", metavar="TASK")
    out: Path | None = option(None, "the new policy folder", metavar="PATH", otherwise="DIR/policy")
    seed: int = option(0, "the number that the policy gets", metavar="SEED", least=0, most=LARGEST_SEED)
    agent_steps: int | None = option(
        None, "agent steps that it was trained for", least=0, most=MOST_STEPS, otherwise="about as saved, else 0"
    )

    def run(self) -> int:
        """Import."""
        from dr_q.policies.authors import import_authors

        done = import_authors(self.folder, self.task, self.out, self.seed, self.agent_steps)
        held = "encoder, actor and critics" if done.critics else "encoder and actor; no value.pt, so no critics"
        about = "about " if self.agent_steps is None else ""
        print(f"{done.folder}: {done.task}, {about}{done.agent_steps:,} agent steps; {held}")
        return 0


def _which(policy: "Policy", asked: int | None) -> str:
    several = len(policy.returns) > 1
    chosen = f"seed {policy.seed}" + (" (best last evaluation)" if several and asked is None else "")
    if policy.which == "last":
        return chosen
    scores = [f"{policy.returns[policy.seed]:.1f} when chosen"] if policy.seed in policy.returns else []
    if policy.seed in policy.fresh_returns:
        scores.append(f"{policy.fresh_returns[policy.seed]:.1f} measured again")
    return f"{chosen}, best over time ({', '.join(scores)})"
