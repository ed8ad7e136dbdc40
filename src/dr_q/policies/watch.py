"""Looking at a trained policy: more evaluation episodes, and a video."""

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal, NamedTuple

import gymnasium
import numpy as np

from dr_q.envs import SUCCESS, Env, Step, make_env, quiet_destructors, scalar, stream_seed
from dr_q.envs.protocol import failure
from dr_q.kit import ConfigError, DrQError, EnvError, MissingPackageError, TaskError, ToolError, spelled
from dr_q.paper import paper_tasks, published_score
from dr_q.policies.episodes import EvaluationNoise, check_length, success_rate
from dr_q.policies.policy import Policy, load
from dr_q.settings import callable_name
from dr_q.spaces import random_unit_action

VIDEO_SIZE = (480, 480)
MOST_FRAMES_PER_SECOND = 60
UNKNOWN_FRAMES_PER_SECOND = 30.0
SECONDS_BETWEEN_LINES = 10


def environment_of(policy: Policy, render: bool = False, make: Callable[[], gymnasium.Env] | None = None) -> Env:
    """A fresh environment of the policy's task, or another one that `make` makes."""
    if make is None and callable_name(policy.task):
        raise TaskError(
            "this policy was trained on a callable's environment, which the command line cannot make; "
            "use dr_q.evaluate(policy, THE_CALLABLE), or policy.act(obs), in Python"
        )
    env = make_env(policy.task if make is None else make, noise_dims=policy.noise_dims, render=render)
    mine, its = policy.spaces.sizes(), env.spec.spaces.sizes()
    if mine != its:
        env.close()
        was, now = ({name: part.shape for name, part in spaces.obs.parts} for spaces in (mine, its))
        what = f"observations of {was}, and gives {now} now" if was != now else "other actions than it has now"
        raise TaskError(
            f"this policy was trained on {policy.task} with {what}; use the versions of dr-q and of the environment "
            "that it was trained with, or train again"
        )
    return env


def compared_with_the_paper(task: str, score: float, episodes: int, of_seeds: list[float]) -> str:
    """A score next to that of random actions and, for the paper's tasks, the paper's.

    `of_seeds` are the scores of all seeds of the policy's run.
    """
    known, published = paper_tasks().get(task), published_score(task)
    if known is None or published is None:
        return f"random {random_returns(task, episodes).mean():.4g} | this policy {score:.4g}"
    # The paper prints no random score for the DeepMind Control Suite: it is measured.
    random = known.random_score if known.random_score is not None else float(random_returns(task, episodes).mean())
    paper = f"paper's DR.Q {published.mean:g} after {known.agent_steps:,} steps, mean of its seeds"
    if of_seeds[1:]:  # one of several is not to be compared with a mean
        mine = f"mean of its run's {len(of_seeds)} seeds {sum(of_seeds) / len(of_seeds):.0f}"
        return f"random {random:.0f} | this policy {score:.0f} | {mine} | {paper}"
    share = 100 * score / published.mean
    return f"random {random:.0f} | this policy {score:.0f} | {paper}: {share:.0f}% of the paper's score"


class PlayedEpisodes(NamedTuple):
    """Episodes of a policy: what `dr_q.evaluate` returns. `print` shows their mean return and share of successes."""

    returns: np.ndarray
    """The return of each episode."""
    success: np.ndarray
    """Whether each succeeded, by its last `info["is_success"]`; NaN if the environment does not report it."""

    def __str__(self) -> str:
        """Their mean return, its standard deviation over episodes if there are several, and the share of successes."""
        count, rate = len(self.returns), success_rate(self.success)
        spread = f" (standard deviation {self.returns.std():.1f})" if count > 1 else ""
        succeeded = "" if rate is None else f", success {100 * rate:.0f}%"
        return f"{self.returns.mean():.1f}{spread} over {count} episode{'s' if count > 1 else ''}{succeeded}"


def evaluate_policy(path: Path, seed: int | None, episodes: int) -> tuple[Policy, PlayedEpisodes]:
    """Play episodes that no evaluation while training had: by those its seed may have been chosen."""
    if episodes < 1:
        raise ConfigError(f"{spelled('episodes')} must be at least 1, got {episodes}")
    policy = load(path, seed)
    return policy, evaluate_loaded(policy, episodes)


def evaluate(
    policy: Policy | str | Path,
    make: Callable[[], gymnasium.Env] | None = None,
    *,
    episodes: int = 10,
    seed: int | None = None,
    which: Literal["last", "best"] = "last",
) -> PlayedEpisodes:
    """Play fresh episodes without exploration noise. No evaluation during training played these episodes.

    Args:
        policy: What `dr_q.load` returned, or the folder of a run or a policy.
        make: A callable that makes the environment. Default: the task that the policy was trained on.
        episodes: Number of episodes.
        seed: With a folder: one of the run's seeds, as in `dr_q.load`.
        which: With a folder: the policy of the last evaluation or the best one, as in `dr_q.load`.

    Returns:
        The return of each episode, and whether it succeeded.

    Raises:
        ConfigError: `episodes` is below 1.
        TaskError: The policy was trained on a callable's environment and `make` is missing, or the environment has
            other spaces than the policy.
        RunFolderError: The folder has no policy.
        EnvError: The environment failed.

    Example:
        ```python
        played = dr_q.evaluate("runs/reach", make, episodes=20, which="best")
        print(played, played.returns.min(), played.success.mean())
        ```
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        raise ConfigError(f"{spelled('episodes')} must be a whole number of at least 1, got {episodes!r}")
    return evaluate_loaded(policy if isinstance(policy, Policy) else load(policy, seed, which), episodes, make)


def evaluate_loaded(policy: Policy, episodes: int, make: Callable[[], gymnasium.Env] | None = None) -> PlayedEpisodes:
    """The same of a policy that is loaded."""
    env = environment_of(policy, make=make)
    try:
        starts = [stream_seed(policy.seed, "fresh", policy.agent_steps, episode) for episode in range(episodes)]
        played = [_episode(env, start, _act_of(policy)) for start in starts]
        return PlayedEpisodes(*(np.array(x) for x in zip(*played, strict=True)))
    finally:
        env.close()


def random_returns(task: str, episodes: int) -> np.ndarray:
    """Returns of uniformly random actions, to compare with."""
    env = make_env(task)
    rng = np.random.default_rng(0)
    try:
        return np.array(
            [_episode(env, start, lambda _: random_unit_action(env.spec.action, rng))[0] for start in range(episodes)]
        )
    finally:
        env.close()


def _act_of(policy: Policy) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    return lambda obs: policy.act_parts({name: x[None] for name, x in obs.items()})[0]


def _episode(env: Env, seed: int, act: Callable[[dict[str, np.ndarray]], np.ndarray]) -> tuple[float, float]:
    """The return of an episode, and whether it succeeded."""
    total, success, noise = 0.0, math.nan, EvaluationNoise(env.spec, np.array(seed))
    for step in _steps(env, env.reset(seed), lambda obs: noise(act(obs))):
        total += step.reward
        success = scalar(step.info.get(SUCCESS))
    return total, success


def _steps(env: Env, obs: dict[str, np.ndarray], act: Callable[[dict[str, np.ndarray]], np.ndarray]) -> Iterator[Step]:
    """Play an episode from its first observation."""
    running, count = True, 0
    while running:
        count += 1
        check_length(env.spec, count)
        step = env.step(act(obs))
        obs, running = step.obs, not (step.terminated or step.truncated)
        yield step


class Recorded(NamedTuple):
    """What a video shows."""

    policy: Policy
    total: float
    """The episode's return."""
    agent_steps: int
    """Of the episode."""
    frames: int
    frames_per_second: float


def frame_schedule(step_seconds: float | None) -> tuple[int, float]:
    """Agent steps for each frame and frames a second, so that simulated time passes as real time does."""
    if step_seconds is None:
        return 1, UNKNOWN_FRAMES_PER_SECOND
    every = math.ceil(round(1 / step_seconds / MOST_FRAMES_PER_SECOND, 6))
    return every, 1 / (step_seconds * every)


_TRY_TO_DRAW = """
import sys
from dr_q.envs import make_env
try:
    env = make_env(sys.argv[1], render=True)
    env.reset(0)
except Exception:
    sys.exit(0)  # one that only the training process knows; drawing it will show
try:
    env.render((64, 64))
except Exception as error:
    print(" ".join(str(error).split()).rstrip(".") or type(error).__name__)
    sys.exit(3)
"""
_SECONDS_TO_DRAW = 120


def why_not_drawn(task: str) -> str:
    """What keeps a task from being drawn, a missing package for instance; empty if nothing is known to.

    It is tried in a process of its own: a driver that fails may end the process, or fail at a second try.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _TRY_TO_DRAW, task]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS_TO_DRAW, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode < 0:
        return f"drawing ended its process with signal {-done.returncode}"
    return (done.stdout.splitlines() or ["it cannot be drawn"])[-1] if done.returncode else ""


def check_video_package() -> None:
    """Refuse to record without the package that writes videos."""
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "a video needs imageio-ffmpeg, which is not installed: pip install 'dr-q[video]'"
        ) from error


def record_video(
    path: Path,
    out: Path,
    seed: int | None,
    say: Callable[[str], None] = lambda _: None,
    size: tuple[int, int] = VIDEO_SIZE,
) -> Recorded:
    """One episode of a saved policy as an MP4, in real time; `say` gets a line of progress now and then."""
    check_video_package()
    if out.suffix.lower() != ".mp4":
        raise ConfigError(f"{spelled('out')} {out} is not an MP4 file's name; end it in .mp4")
    policy = load(path, seed)
    with quiet_destructors():
        try:
            return record_episode(policy, environment_of(policy, render=True), out, say, size)
        except (EnvError, TaskError) as error:
            # The error itself would keep what cannot be freed quietly.
            failed = EnvError(str(error)) if isinstance(error, EnvError) else TaskError(str(error))
    raise failed


def record_episode(
    policy: Policy,
    env: Env,
    out: Path,
    say: Callable[[str], None] = lambda _: None,
    size: tuple[int, int] = VIDEO_SIZE,
) -> Recorded:
    """One episode of a policy in an environment that can be drawn, which is closed after it."""
    import imageio_ffmpeg

    every, rate = frame_schedule(env.spec.step_seconds)
    most = "" if env.spec.episode_length is None else f" of {env.spec.episode_length:,} at most"
    total, steps, frames, said = 0.0, 0, 1, time.monotonic()
    try:
        obs = env.reset(stream_seed(policy.seed, "video", policy.agent_steps))
        frame = _drawn(env, size)
        out.parent.mkdir(parents=True, exist_ok=True)
        with _encoder(imageio_ffmpeg.get_ffmpeg_exe(), out, frame.shape[1], frame.shape[0], rate) as pipe:
            pipe.write(frame.tobytes())
            for step in _steps(env, obs, _act_of(policy)):
                total += step.reward
                steps += 1
                if steps % every == 0 or step.terminated or step.truncated:
                    pipe.write(_drawn(env, size).tobytes())
                    frames += 1
                if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    say(f"agent step {steps:,}{most}, return so far {total:.1f}")
    finally:
        env.close()
    return Recorded(policy, total, steps, frames, rate)


def _drawn(env: Env, size: tuple[int, int]) -> np.ndarray:
    """An image of the environment; drivers and libraries fail in many ways."""
    try:
        return env.render(size)
    except DrQError:
        raise
    except Exception as error:
        raise EnvError(f"nothing can be drawn here: {failure(error)}; dr-q doctor says what works") from error


@contextlib.contextmanager
def _encoder(ffmpeg: str, out: Path, width: int, height: int, rate: float) -> Iterator[IO[bytes]]:
    """A pipe of raw RGB frames into an MP4.

    imageio_ffmpeg's own writer forks with a hook, which must not happen in a process that uses jax.
    """
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]  # the format halves the colours' sides
    target = ["-an", *even, "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(out)]
    command = [ffmpeg, "-y", "-loglevel", "error", *source, *target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # it ended before its input did, and says why
            yield process.stdin
            process.stdin.close()
        said = " ".join(process.stderr.read().decode(errors="replace").split())
        if process.wait() != 0:
            raise ToolError(f"ffmpeg could not write {out}: {said}")
