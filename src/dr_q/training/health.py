"""Whether a run still computes with numbers: NaN and infinite losses, weights and actions; rewards beyond the bins.

A run that has diverged stops at once. What is looked at, and when, is chosen so that nothing waits for the device:
- every step, the actions, which the loop has anyway. NaN in an encoder or an actor reaches them in the next step, and
  NaN in a critic one update later, because the actor learns from it;
- every 50 steps, the losses of the update before the last, which those actions waited for already;
- at every checkpoint, all weights, which are copied to the host for it anyway. No checkpoint has NaN in it.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dr_q import agent as drq
from dr_q.agent.named_arrays import named_arrays
from dr_q.config import LARGEST_BIN, Config
from dr_q.kit import TrainingError, spelled
from dr_q.learner import Learner
from dr_q.training.step import Stepper

_SHOWN = 4
"""Names of what is NaN that a message lists."""


def metric_values(config: Config, metrics: Array | None, encoder: drq.EncoderMetrics | None) -> dict[str, np.ndarray]:
    """What updates saw, by name, [S] each; waits for them."""
    values: dict[str, np.ndarray] = {}
    if metrics is not None:
        values |= dict(zip(drq.metric_names(config), np.asarray(metrics).T, strict=True))
    if encoder is not None:
        values["encoder_loss"] = np.asarray(encoder.loss)
        values |= {f"encoder_{term.name}": np.asarray(encoder.terms[term.name]) for term in drq.TERMS}
    return values


def logged_names(config: Config) -> list[str]:
    """Names of what `metric_values` gives once a run learns."""
    return [*drq.metric_names(config), "encoder_loss", *(f"encoder_{term.name}" for term in drq.TERMS)]


def reward_bounds(config: Config) -> tuple[float, float]:
    """The lowest and the highest reward that the two-hot bins can express."""
    low, high = config.reward_range
    return math.copysign(math.expm1(abs(low)), low), math.copysign(math.expm1(abs(high)), high)


class Health:
    """Stops a run that has diverged, and warns of rewards that the networks cannot express."""

    def __init__(
        self,
        config: Config,
        seeds: list[int],
        learner: Learner,
        say: Callable[[str], None],
        last_checkpoint: Callable[[], str],
    ):
        """`last_checkpoint` says in words which one can be resumed."""
        self._config, self._seeds, self._learner = config, seeds, learner
        self._say, self._last_checkpoint = say, last_checkpoint
        self._warned = False

    def check_actions(self, stepper: Stepper, agent_steps: int) -> None:
        """Stop if a policy gave NaN; the losses say more of why."""
        actions = stepper.actions
        if np.count_nonzero(np.isfinite(actions)) == actions.size:
            return
        values = metric_values(self._config, stepper.metrics, stepper.encoder_metrics)
        self.check({**values, "its actions": actions.reshape(len(self._seeds), -1)}, agent_steps)

    def check_metrics(self, metrics: Array | None, encoder: drq.EncoderMetrics | None, agent_steps: int) -> None:
        """Stop if an update computed NaN or infinite numbers."""
        self.check(metric_values(self._config, metrics, encoder), agent_steps)

    def check_weights(self, agent_steps: int) -> None:
        """Stop if weights are NaN or infinite, before they are written to a checkpoint."""
        online = self._learner.states.agents.online
        self.check({f"weights {name}": x for name, x in named_arrays(online).items()}, agent_steps)

    def check(self, values: dict[str, np.ndarray], agent_steps: int) -> None:
        """Stop if anything is NaN or infinite: [S, ...] arrays by name.

        Raises:
            TrainingError: Which seed, what of it, how large its rewards and observations are, the last checkpoint.
        """
        for index, seed in enumerate(self._seeds):
            lost = [name for name, x in values.items() if not np.isfinite(x[index]).all()]
            if not lost:
                continue
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            what = f"{', '.join(lost[:_SHOWN])}{more} {'is' if len(lost) == 1 else 'are'} NaN or infinite"
            mixed = f"try {spelled('compute')} float32; " if self._config.compute == "mixed" else ""
            saved = self._last_checkpoint()
            raise TrainingError(
                f"seed {seed} has diverged at step {agent_steps:,}: {what}; {self._largest(index)}; {mixed}scale "
                f"rewards and observations that are very large, or give smaller learning rates; {saved}"
            )

    def check_rewards(self, lowest: float, highest: float) -> None:
        """Warn once of rewards outside the two-hot range."""
        low, high = reward_bounds(self._config)
        if self._warned or self._config.reward_weight == 0 or (low <= lowest and highest <= high):
            return
        self._warned = True
        size = highest if highest - high > low - lowest else lowest
        needed = math.ceil(math.log1p(abs(size)))
        bounds = self._config.reward_range
        wider = (min(bounds[0], -needed), bounds[1]) if size < 0 else (bounds[0], max(bounds[1], needed))
        option = f"{spelled('reward_range')} {wider[0]:g} {wider[1]:g}"
        other = f", or train with {option}" if needed <= LARGEST_BIN else ""
        self._say(
            f"rewards as large as {size:.3g} are outside the range of the reward bins, {low:,.0f} to {high:,.0f} "
            f"({spelled('reward_range')} {bounds[0]:g} {bounds[1]:g}): the encoder takes them for the outermost bin, "
            f"and values of that size make learning unstable; scale the environment's rewards down{other}"
        )

    def _largest(self, index: int) -> str:
        """The size of a seed's rewards and observations in its replay."""
        storage = self._learner.states.replays.storage
        reward = np.abs(np.asarray(storage.reward)[index])
        frames = storage.obs if self._learner.frames is None else self._learner.frames.rings
        vectors = [x for x in (frames or {}).values() if x.dtype != np.uint8]
        said = f"the largest reward in its replay is {reward.max():.3g}"
        if not vectors:
            return said
        return f"{said}, the largest observation {max(_largest_of(x)[index] for x in vectors):.3g}"


def _largest_of(x: Array | np.ndarray) -> np.ndarray:
    """The largest absolute value of each seed; without a copy of what may fill a device."""
    return np.asarray(jax.jit(lambda x: jnp.max(jnp.abs(x), axis=tuple(range(1, x.ndim))))(x))
