"""DR.Q in a loop of your own: agent, replay and updates as functions, without run folders and processes.

    python examples/own_loop.py

It learns as `dr-q train gym/Pendulum-v1 --preset quick` does: one seed, one environment, one update per step.
"""

import gymnasium
import jax
import jax.numpy as jnp

import dr_q
from dr_q import agent as drq
from dr_q import replay as rp

explore = jax.jit(drq.explore, static_argnums=0)
train_encoder = jax.jit(drq.sync_targets_and_train_encoder, static_argnums=0)
update = jax.jit(drq.update_actor_critic, static_argnums=0)


def transition(obs, action, reward, next_obs, terminated, truncated):
    """One step of one environment as the replay stores it; observations are dicts by part."""
    obs, next_obs = ({"obs": jnp.asarray(x, jnp.float32)} for x in (obs, next_obs))
    ends = jnp.asarray(terminated), jnp.asarray(truncated)
    return rp.Transition(obs, action, jnp.float32(reward), next_obs, *ends)


def main(steps=5_000, seed=0, **settings):
    config = dr_q.preset("quick", **settings)
    env = gymnasium.make("Pendulum-v1")
    low, high = env.action_space.low, env.action_space.high
    actions = dr_q.ContinuousActions(tuple(low.tolist()), tuple(high.tolist()))
    spaces = dr_q.Spaces(dr_q.ObsSpec.vector(env.observation_space.shape[0]), actions)

    key, key_networks = jax.random.split(jax.random.key(seed))
    agent = drq.init_agent(config, drq.init_networks(config, spaces, key_networks))
    replay = rp.init_replay(config, spaces, capacity=steps + 1)

    obs, _ = env.reset(seed=seed)
    total, returns = 0.0, []
    for step in range(steps):
        key, key_action, key_encoder, key_update = jax.random.split(key, 4)
        if step < config.exploration_steps:
            action = drq.random_action(spaces.action, key_action)
        else:
            action = explore(config, agent.online, {"obs": jnp.asarray(obs)}, key_action)
        given = low + (jax.device_get(action) + 1) / 2 * (high - low)  # the agent acts in [-1, 1]
        next_obs, reward, terminated, truncated, _ = env.step(given)
        replay = rp.add_in_place(replay, transition(obs, action, reward, next_obs, terminated, truncated))

        updates = step - config.exploration_steps  # made so far
        if updates >= 0:
            if updates % config.target_period == 0:  # a target period begins
                agent, encoder = train_encoder(config, agent, replay, key_encoder)
            agent, replay, critic = update(config, agent, replay, key_update)

        obs, total = next_obs, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            print(f"step {step + 1}: return {total:.1f}")
            total, (obs, _) = 0.0, env.reset()
    print(f"encoder loss {float(encoder.loss):.3f}, critic loss {float(critic.critic_loss):.3f}")
    return returns


if __name__ == "__main__":
    main()
