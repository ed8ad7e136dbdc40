"""The encoder loss's terms as a table (Eqs. 6-9).

A new term is one function here with a line in `TERMS`, and its weight in `config.py`: metrics, logs and checkpoints
follow. A term of weight 0 is not computed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dr_q.agent.rollout import roll_out
from dr_q.config import Config
from dr_q.equations import StoredImages, alive_steps, infonce, latent_mse, reward_bins, reward_cross_entropy
from dr_q.networks import Encoder
from dr_q.replay import Subtrajectory


class Prediction(NamedTuple):
    """The latent model, rolled out along a batch of windows, and its targets."""

    z_sa: Float[Array, "H B zsa"]
    """Latent state-action at each step."""
    pred_z_s: Float[Array, "H B zs"]
    """Predicted latent state after each step."""
    target_z_s: Float[Array, "H B zs"]
    """The target encoder's latent state after each step; no gradient flows through it."""
    reward_logits: Float[Array, "H B bins"]
    """Predicted reward at each step, as logits over the two-hot bins."""
    done: Float[Array, "H B"] | None
    """Predicted done flag; None unless `done_weight` is above 0 (MR.Q)."""
    batch: Subtrajectory
    """The windows."""
    has_terminated: Bool[Array, ""]
    """Whether any transition of the replay so far terminated its episode."""


def predict(encoder: Encoder, target: Encoder, batch: Subtrajectory, has_terminated: Bool[Array, ""]) -> Prediction:
    """Roll the latent model out along a batch; each step's prediction feeds the next (Eq. 5).

    Args:
        encoder: The online encoder.
        target: The target encoder.
        batch: Windows of transitions, with normalised observations if the agent normalises them.
        has_terminated: Whether any transition of the replay so far terminated (`storage.has_terminated`).

    Returns:
        The predictions and their targets.

    Example:
        ```python
        batch = dr_q.replay.sample_subtrajectory(replay.storage, slots, config.encoder_horizon)
        prediction = dr_q.agent.predict(
            agent.online.encoder, agent.target.encoder, batch, replay.storage.has_terminated
        )
        ```
    """
    first, later = ({name: at_index(x, i) for name, x in batch.obs.items()} for i in (0, slice(1, None)))
    target_z_s = jax.lax.stop_gradient(_over_time(target, later, batch.reward.shape))
    rollout = roll_out(encoder, encoder.z_s(first), batch.action)
    reward = encoder.reward(rollout.z_sa)
    return Prediction(*rollout, target_z_s, *reward, batch, has_terminated)


def dynamics_term(config: Config, prediction: Prediction) -> Float[Array, "H B"]:
    """Squared error of the predicted latent states (Eq. 7)."""
    return jax.vmap(latent_mse)(prediction.pred_z_s, prediction.target_z_s)


def reward_term(config: Config, prediction: Prediction) -> Float[Array, "H B"]:
    """Cross entropy of the predicted rewards (Eq. 6)."""
    bins = reward_bins(*config.reward_range, config.reward_bins)
    loss = jax.vmap(lambda logits, reward: reward_cross_entropy(logits, reward, bins))
    return loss(prediction.reward_logits, prediction.batch.reward)


def infonce_term(config: Config, prediction: Prediction) -> Float[Array, "H B"]:
    """InfoNCE of predicted against true latent states, the other samples as negatives (Eq. 8)."""
    loss = jax.vmap(lambda pred, z: infonce(pred, z, config.infonce_temperature))
    return loss(prediction.pred_z_s, prediction.target_z_s)


def done_term(config: Config, prediction: Prediction) -> Float[Array, "H B"]:
    """Squared error of the predicted done flag (MR.Q)."""
    assert prediction.done is not None
    return jnp.square(prediction.done - (1 - prediction.batch.not_done))


class Term(NamedTuple):
    """One term of the encoder loss: a row of `TERMS`."""

    name: str
    """Its name; the column in logs is `encoder_NAME`."""
    weight: str
    """Name of the setting that is its weight."""
    loss: Callable[[Config, Prediction], Float[Array, "H B"]]
    """The loss, a value for each step and sample. The caller masks steps after a termination."""
    when: Callable[[Prediction], Bool[Array, ""]] | None = None
    """Whether the term counts yet; None if it always does."""


TERMS: tuple[Term, ...] = (
    Term("dynamics", weight="dynamics_weight", loss=dynamics_term),
    Term("reward", weight="reward_weight", loss=reward_term),
    Term("infonce", weight="infonce_weight", loss=infonce_term),
    # MR.Q learns the flag once there is something to learn.
    Term("done", weight="done_weight", loss=done_term, when=lambda prediction: prediction.has_terminated),
)
"""The terms of the encoder loss. A term with weight 0 is not computed."""


def encoder_terms(config: Config, prediction: Prediction) -> dict[str, Float[Array, ""]]:
    """Each term of the encoder loss without its weight, summed over the horizon and averaged over the batch.

    Args:
        config: The settings. It uses the weights, `infonce_temperature` and the reward bins.
        prediction: What `predict` returned.

    Returns:
        A value for each name of `TERMS`; 0 for a term with weight 0.

    Raises:
        ValueError: A term returned something else than a value for each step and sample.

    Example:
        ```python
        terms = dr_q.agent.encoder_terms(config, prediction)
        print({name: float(value) for name, value in terms.items()})
        ```
    """
    # D1: masked per sample. Averaged over the whole batch, not over what is alive.
    alive = alive_steps(prediction.batch.not_done)

    def value(term: Term) -> Float[Array, ""]:
        if not getattr(config, term.weight):
            return jnp.zeros(())
        loss = term.loss(config, prediction)
        if loss.shape != alive.shape:  # it would be repeated over what it lacks
            raise ValueError(
                f"the encoder term {term.name} returned shape {loss.shape}, expected {alive.shape}: a value for each "
                "step and sample"
            )
        return jnp.sum(jnp.mean(loss * alive, axis=1))

    return {term.name: value(term) for term in TERMS}


def encoder_loss(config: Config, prediction: Prediction, terms: dict[str, Float[Array, ""]]) -> Float[Array, ""]:
    """The encoder loss: the weighted sum of its terms (Eq. 9).

    Args:
        config: The settings. It uses the weights of the terms.
        prediction: What `predict` returned.
        terms: What `encoder_terms` returned.

    Returns:
        The loss.

    Example:
        ```python
        def loss(encoder):
            prediction = dr_q.agent.predict(encoder, agent.target.encoder, batch, replay.storage.has_terminated)
            return dr_q.agent.encoder_loss(config, prediction, dr_q.agent.encoder_terms(config, prediction))


        value, gradient = jax.value_and_grad(loss)(agent.online.encoder)
        ```
    """

    def weighted(term: Term) -> Float[Array, ""]:
        value = terms[term.name]
        counts = value if term.when is None else jnp.where(term.when(prediction), value, 0.0)
        return getattr(config, term.weight) * counts

    first, *rest = map(weighted, TERMS)
    return sum(rest, first)


def at_index(x: Any, index: int | slice) -> Any:
    """Observations of a part at places of the first axis."""
    return x.at(index) if isinstance(x, StoredImages) else x[index]


def _over_time(encoder: Encoder, obs: dict[str, Any], shape: tuple[int, ...]) -> Float[Array, "H B zs"]:
    """z_s of [H, B, *obs] observations, as one batch of H * B."""
    flat = {name: x.flat() if isinstance(x, StoredImages) else x.reshape(-1, *x.shape[2:]) for name, x in obs.items()}
    return encoder.z_s(flat).reshape(*shape, -1)
