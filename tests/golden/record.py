"""Records a case `discrete_*.npz` from the authors' agent: what it computes, as plain arrays.

    python tests/golden/record.py CHECKOUT [--out FILE] [--actions 4] [--obs-dim 5] [--batch 8] [--terminations] ...

CHECKOUT is a folder with the authors' repository (github.com/dmksjfl/DR.Q). It needs PyTorch, which dr-q itself does
not: make a virtual environment of its own and `pip install torch==2.13.0 numpy` there. `README.md` says what the arrays
mean, and `tests/test_golden_agent.py` compares ours with every such file in the folder `DRQ_GOLDEN`.

The authors' own functions run. Their random draws (torch.randn_like, Tensor.exponential_) are replaced by recorded
ones. Two things differ from their code: the InfoNCE mask is per sample (D1), and there is no replay buffer, because
theirs needs a GPU.
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

Arrays = dict[str, np.ndarray]
HORIZON, N_STEPS = 5, 3
CHANNELS, SIDE = 4, 84


def arguments() -> argparse.Namespace:
    """What to record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder with the authors' repository")
    parser.add_argument("--out", type=Path, default=Path("discrete_recorded.npz"))
    sizes = {"actions": 4, "obs-dim": 5, "batch": 8, "zs-dim": 16, "zsa-dim": 16, "za-dim": 8}
    for name, default in {**sizes, "enc-hdim": 24, "value-hdim": 16, "policy-hdim": 20, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pixels", action="store_true", help="uint8 images 4 x 84 x 84 in place of vectors")
    parser.add_argument("--terminations", action="store_true", help="let some transitions terminate")
    return parser.parse_args()


class Recorder:
    """The authors' agent at the given sizes, and what it computed."""

    def __init__(self, options: argparse.Namespace):
        if not (options.checkout / "DRQ" / "DRQ.py").exists():
            raise SystemExit(
                f"record.py: {options.checkout} has no DRQ/DRQ.py; give a checkout of github.com/dmksjfl/DR.Q"
            )
        sys.path.insert(0, str(options.checkout / "DRQ"))
        try:
            self.torch = importlib.import_module("torch")
            self.drq = importlib.import_module("DRQ")
        except ModuleNotFoundError as error:
            raise SystemExit(f"record.py: the authors' agent needs {error.name}: pip install {error.name}") from None
        self.torch.manual_seed(options.seed)
        self.torch.set_num_threads(1)
        self.options, self.rng = options, np.random.default_rng(options.seed)
        self.arrays: Arrays = {}
        names = ("zs_dim", "zsa_dim", "za_dim", "enc_hdim", "value_hdim", "policy_hdim")
        self.hyper = {**{name: getattr(options, name) for name in names}, "batch_size": options.batch}
        self.agent = self._agent()

    def _agent(self) -> Any:
        shape = (CHANNELS, SIDE, SIDE) if self.options.pixels else (self.options.obs_dim,)

        class NoBuffer:
            """What the agent reads of its buffer when it acts."""

            size, state_shape = 10**9, list(shape)

            def __init__(self, *_: Any, **__: Any):
                pass

        infonce = self.drq.Agent.mutual_information_loss

        class PerSample(self.drq.Agent):
            """D1: of shape (B, 1), which the mask of shape (B, 1) multiplies per sample."""

            def mutual_information_loss(self, *rest: Any, **more: Any) -> Any:
                return infonce(self, *rest, **more).reshape(-1, 1)

        with mock.patch.object(self.drq.buffer, "ReplayBuffer", NoBuffer):
            agent = PerSample(
                shape, self.options.actions, 1, self.options.pixels, True, self.torch.device("cpu"), hp=dict(self.hyper)
            )
        agent.training_steps = 2  # nothing is logged then
        for name in ("encoder", "policy", "value"):
            for net in (getattr(agent, name), getattr(agent, f"{name}_target")):
                for parameter in net.parameters():  # targets differ, biases are not 0
                    parameter.data += 0.1 * self.torch.randn(parameter.shape)
        return agent

    @contextlib.contextmanager
    def _draws(self, exponential: list[np.ndarray], normal: list[np.ndarray]) -> Iterator[None]:
        """Let the authors' code get these draws, in this order."""
        gumbel_draws, normal_draws = iter(exponential), iter(normal)

        def fill(tensor: Any, *_: Any, **__: Any) -> Any:
            return tensor.copy_(self.torch.tensor(next(gumbel_draws)))

        def like(tensor: Any, *_: Any, **__: Any) -> Any:
            return self.torch.tensor(next(normal_draws)).reshape(tensor.shape)

        with mock.patch.object(self.torch.Tensor, "exponential_", fill), mock.patch("torch.randn_like", like):
            yield

    def record(self) -> Arrays:
        """Everything, in the order in which the authors' loop would compute it."""
        self._weights("init", "encoder", "encoder_target", "policy", "policy_target", "value", "value_target")
        self._inputs()
        self._forward()
        self._encoder()
        self._actor_critic()
        kind = {"pixels": True} if self.options.pixels else {"obs_dim": self.options.obs_dim}
        known = {**self.hyper, **kind, "actions": self.options.actions, "discrete": True, "gumbel_tau": 10.0}
        self.arrays["meta/hyper"] = np.array(str(known))
        return self.arrays

    def _weights(self, prefix: str, *names: str) -> None:
        for name in names:
            for key, tensor in getattr(self.agent, name).state_dict().items():
                self.arrays[f"{prefix}/{name}/{key}"] = tensor.detach().numpy().copy()

    def _states(self, *leading: int) -> np.ndarray:
        if self.options.pixels:
            return self.rng.integers(0, 256, (*leading, CHANNELS, SIDE, SIDE), np.uint8)
        return self.rng.normal(size=(*leading, self.options.obs_dim)).astype(np.float32)

    def _actions(self, *leading: int) -> np.ndarray:
        return np.eye(self.options.actions, dtype=np.float32)[self.rng.integers(self.options.actions, size=leading)]

    def _not_done(self, *leading: int) -> np.ndarray:
        ended = self.rng.random((*leading, 1)) < (0.25 if self.options.terminations else 0)
        return 1 - ended.astype(np.float32)

    def _inputs(self) -> None:
        batch, count = self.options.batch, self.options.actions
        normal = self.rng.normal
        self.arrays |= {
            "enc/state": self._states(batch, HORIZON),
            "enc/action": self._actions(batch, HORIZON),
            "enc/reward": normal(size=(batch, HORIZON, 1)).astype(np.float32),
            "enc/not_done": self._not_done(batch, HORIZON),
            "enc/next_state": self._states(batch, HORIZON),
            "rl/state": self._states(batch),
            "rl/next_state": self._states(batch),
            "rl/action": self._actions(batch),
            "rl/reward": normal(size=(batch, N_STEPS, 1)).astype(np.float32),
            "rl/not_done": self._not_done(batch, N_STEPS),
            "rl/standard_normal": normal(size=(batch, count)).astype(np.float32),
        }
        self.exponential = {}
        for name in ("rl/gumbel_target", "rl/gumbel_actor", "fwd/gumbel"):
            draw = np.maximum(self.rng.exponential(size=(batch, count)).astype(np.float32), 1e-6)
            self.exponential[name] = draw
            self.arrays[name] = (-self.torch.tensor(draw).log()).numpy()

    def _tensor(self, name: str) -> Any:
        return self.torch.tensor(self.arrays[name])

    def _floats(self, name: str) -> Any:
        return self._tensor(name).float()

    def _forward(self) -> None:
        agent = self.agent
        with self.torch.no_grad(), self._draws([self.exponential["fwd/gumbel"]], []):
            z_s = agent.encoder.zs(self._floats("rl/state"))
            z_sa = agent.encoder(z_s, self._tensor("rl/action"))
            done, pred_z_s, reward_logits = agent.encoder.model_all(z_s, self._tensor("rl/action"))
            action, logits = agent.policy(z_s)
            found = {"z_s": z_s, "z_sa": z_sa, "pred_z_s": pred_z_s, "pred_reward_logits": reward_logits}
            found |= {"pred_done": done, "action": action, "logits": logits, "q": agent.value(z_sa)}
        self.arrays |= {f"fwd/{name}": tensor.numpy() for name, tensor in found.items()}
        explored = [self._explored(row) for row in range(self.options.batch)]
        self.arrays["fwd/explored"] = np.array(explored, np.int32)
        self.arrays["fwd/greedy"] = logits.argmax(1).numpy().astype(np.int32)

    def _explored(self, row: int) -> int:
        """What the agent does while it trains, in one state."""
        gumbel, normal = self.exponential["fwd/gumbel"][row : row + 1], self.arrays["rl/standard_normal"][row : row + 1]
        with self._draws([gumbel], [normal]):
            return self.agent.select_action(self.arrays["rl/state"][row])

    def _encoder(self) -> None:
        agent = self.agent
        batch = [self._tensor(f"enc/{name}") for name in ("state", "action", "next_state", "reward", "not_done")]
        batch[0], batch[2] = batch[0].float(), batch[2].float()
        self._encoder_terms(*batch)
        for update in (1, 2, 3):
            agent.train_encoder(*batch, True)
            if update != 2:
                self._weights(f"enc_after{update}", "encoder")
        agent.encoder.load_state_dict({k: self._tensor(f"init/encoder/{k}") for k in agent.encoder.state_dict()})

    def _encoder_terms(self, state: Any, action: Any, next_state: Any, reward: Any, not_done: Any) -> None:
        """Each term summed over the horizon, by the authors' functions; what `train_encoder` adds up."""
        agent, sums = self.agent, dict.fromkeys(("dynamics", "reward", "infonce", "done"), 0.0)
        with self.torch.no_grad():
            target = agent.encoder_target.zs(next_state.reshape(-1, *agent.state_shape))
            target = target.reshape(len(state), HORIZON, -1)
            z_s, alive = agent.encoder.zs(state[:, 0]), self.torch.ones(len(state), 1)
            for t in range(HORIZON):
                done, z_s, logits = agent.encoder.model_all(z_s, action[:, t])
                sums["dynamics"] += self.drq.masked_mse(z_s, target[:, t], alive)
                sums["reward"] += (agent.two_hot.cross_entropy_loss(logits, reward[:, t]) * alive).mean()
                sums["infonce"] += (agent.mutual_information_loss(z_s, target[:, t]) * alive).mean()
                sums["done"] += self.drq.masked_mse(done, 1 - not_done[:, t], alive)
                alive = alive * not_done[:, t]
        self.arrays |= {f"enc/loss_{name}": np.array(float(value), np.float32) for name, value in sums.items()}

    def _actor_critic(self) -> None:
        agent = self.agent
        reward, discount = self.drq.multi_step_reward(
            self._tensor("rl/reward"), self._tensor("rl/not_done"), agent.discount
        )
        self.arrays |= {"rl/n_step_reward": reward.numpy().copy(), "rl/n_step_discount": discount.numpy().copy()}
        self._target_action()
        states = self._floats("rl/state"), self._tensor("rl/action"), self._floats("rl/next_state")
        for update in (1, 2, 3):
            gumbel = [self.exponential["rl/gumbel_target"], self.exponential["rl/gumbel_actor"]]
            with self._draws(gumbel, [self.arrays["rl/standard_normal"]]):
                q, target = agent.train_rl(*states, reward, discount, 1, 0, None)
            if update == 1:
                error = (q - target.expand(-1, 2)).abs().max(1).values
                loss = self.torch.nn.functional.smooth_l1_loss(q, target.expand(-1, 2))
                self.arrays |= {
                    "rl/q": q.detach().numpy().copy(),
                    "rl/q_target": target.numpy().copy(),
                    "rl/critic_loss": loss.detach().numpy(),
                    "rl/priority": error.clamp(min=agent.min_priority).pow(agent.alpha).detach().numpy(),
                }
            if update != 2:
                self._weights(f"rl_after{update}", "value", "policy")

    def _target_action(self) -> None:
        """As `train_rl` makes it; it keeps it to itself."""
        agent = self.agent
        with self.torch.no_grad(), self._draws([self.exponential["rl/gumbel_target"]], []):
            noise = self._tensor("rl/standard_normal") * agent.target_policy_noise
            soft = agent.policy_target.act(agent.encoder_target.zs(self._floats("rl/next_state")))
            action = self.drq.realign(soft + noise.clamp(-agent.noise_clip, agent.noise_clip), True)
        self.arrays["rl/target_action"] = action.numpy()


def main() -> None:
    """Record one case."""
    options = arguments()
    arrays = Recorder(options).record()
    np.savez_compressed(options.out, **arrays)  # pyright: ignore[reportArgumentType] - numpy's stub takes names for options
    print(f"{options.out}: {len(arrays)} arrays")


if __name__ == "__main__":
    main()
