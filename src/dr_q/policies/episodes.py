"""What playing episodes with a policy needs, in training and after it."""

from dr_q.envs import EnvSpec
from dr_q.kit import TrainingError

LONGEST_EPISODE = 100_000
"""Steps of an evaluation after which an environment without a time limit is taken to have no end."""


def check_length(spec: EnvSpec, steps: int) -> None:
    """End an episode that has none."""
    if spec.episode_length is None and steps > LONGEST_EPISODE:
        raise TrainingError(
            f"an evaluation episode has not ended after {LONGEST_EPISODE:,} steps, and the environment has no time "
            "limit; give it one: gymnasium.wrappers.TimeLimit(env, STEPS)"
        )
