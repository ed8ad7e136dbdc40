"""An environment of your own: register it, train on it, load the policy, act.

    python examples/own_environment.py
    cd examples && dr-q train own_environment:Point-v0 --preset quick --steps 2000   # the same task by its name

`max_episode_steps` ends the episodes, because this environment does not terminate.
"""

import gymnasium
import numpy as np

import dr_q


class Point(gymnasium.Env):
    """Push a point to the origin."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action):
        self.x += 0.2 * action
        return self.x.copy(), -float(np.linalg.norm(self.x)), False, False, {}


if "Point-v0" not in gymnasium.registry:
    gymnasium.register("Point-v0", Point, max_episode_steps=50)


def main(out="runs/point", steps=2_000, **settings):
    settings = {"preset": "quick", "exploration_steps": 500, "eval_every": 500, **settings}
    dr_q.train("own_environment:Point-v0", steps=steps, out=out, **settings)

    policy = dr_q.load(out)
    env = gymnasium.make("Point-v0")
    obs, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
        total, over = total + reward, terminated or truncated
    print(f"{policy}: return {total:.1f}, ends at {obs.round(2)}")
    return total


if __name__ == "__main__":
    main()
