"""Videos of the first seed's policy, while a run trains. Whatever goes wrong with them, training continues."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from dr_q.envs import make_env, quiet_destructors
from dr_q.kit import ToolError
from dr_q.policies import Policy
from dr_q.policies.watch import record_episode, why_not_drawn
from dr_q.run_folder import video_file
from dr_q.settings import Settings


class Videos:
    """One after every so many evaluations."""

    def __init__(self, settings: Settings, every: int | None, folder: Path, say: Callable[[str], None]):
        """One after every `every` evaluations, or none. If none can be made, that is said before anything compiles."""
        self._settings, self._every, self._folder, self._say = settings, every, folder, say
        self._can_draw = every is not None
        """Whether no video has failed in a way that will not pass."""
        self._said = ""
        task = settings.task
        why_not = why_not_drawn(task) if every is not None and isinstance(task, str) else ""
        if why_not:
            say(f"there will be no videos: {why_not}; training continues without")
            self._can_draw = False

    def is_due(self, agent_steps: int) -> bool:
        """Whether an evaluation at this step is one to record."""
        regular = agent_steps > 0 and self._settings.is_due(self._settings.eval_every, agent_steps)
        number = agent_steps // self._settings.eval_every
        return self._every is not None and self._can_draw and regular and number % self._every == 0

    def record(self, policy: Policy, seed: int, agent_steps: int) -> None:
        """Play an episode and write it."""
        out = video_file(self._folder, agent_steps, seed)
        with quiet_destructors():
            try:
                env = make_env(self._settings.task, noise_dims=self._settings.noise_dims, render=True)
                shown = record_episode(policy, env, out)
                self._say(f"{out}: return {shown.total:.1f}, {shown.frames / shown.frames_per_second:.1f} s")
            except Exception as error:  # drawing needs drivers and tools that fail in many ways
                # A disk may have room again later. A driver that failed may end the process at a second try.
                self._can_draw = isinstance(error, OSError | ToolError)
                said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
                if said != self._said:
                    self._said = said
                    more = "training continues" if self._can_draw else "training continues without videos"
                    self._say(f"no video of step {agent_steps:,}: {said}; {more}")
                with contextlib.suppress(OSError):
                    out.unlink(missing_ok=True)
