"""Record a small agent that the authors' code trains for a moment and saves, for `test_import_authors.py`.

python tests/policies/record_authors_agent.py PATH_TO_THEIR_DRQ_FOLDER   (needs torch==2.13.0)

Kept are the files that `Agent.save` writes, less optimisers, targets and replay, and the actions that their
`select_action` gives for some observations. None of their code is kept.
"""

import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "data" / "authors-agent"
SIZES = {"zs_dim": 16, "zsa_dim": 16, "za_dim": 8, "enc_hdim": 70, "policy_hdim": 24, "value_hdim": 24}
SETTINGS = {"batch_size": 16, "buffer_size": 500, "buffer_size_before_training": 60, "target_update_freq": 20}
STEPS = 100
OBSERVATIONS = 64


class NoWriter:
    def add_scalar(self, *_, **__):
        pass


class OnCpu:
    """Their buffer puts observations on a GPU; here it sees a torch whose devices are all the CPU."""

    def __init__(self, torch):
        self._torch = torch

    def __getattr__(self, name):
        return (lambda *_: self._torch.device("cpu")) if name == "device" else getattr(self._torch, name)


def record(name: str, obs_dim: int, action_dim: int, max_action: float, discrete: bool, history: int = 1) -> None:
    """With a `history`, an agent that sees that many grey images of 84 x 84."""
    torch, authors = importlib.import_module("torch"), importlib.import_module("DRQ")
    vars(importlib.import_module("buffer"))["torch"] = OnCpu(torch)
    torch.manual_seed(0)
    rng, images = np.random.default_rng(0), history > 1
    shape = (1, 84, 84) if images else (obs_dim,)
    agent = authors.Agent(
        shape, action_dim, max_action, images, discrete, torch.device("cpu"), history, {**SIZES, **SETTINGS}
    )

    def observed() -> np.ndarray:
        if not images:
            return rng.normal(size=obs_dim)
        blocks = rng.integers(256, size=(history, 7, 7), dtype=np.uint8)
        return np.kron(blocks, np.ones((1, 12, 12), np.uint8))

    state = observed()
    for step in range(STEPS):
        action = agent.select_action(state)
        if action is None:
            action = int(rng.integers(action_dim)) if discrete else max_action * rng.uniform(-1, 1, action_dim)
        after = observed() if images else 0.9 * state + observed()
        reward = float(after.mean() / 255 if images else -np.square(after).sum())
        agent.replay_buffer.add(state, action, after, reward, False, step % 25 == 24)
        state = after
        agent.train(NoWriter())
    seen = np.stack([observed() for _ in range(8 if images else OBSERVATIONS)])
    seen = seen if images else seen.astype(np.float32)
    # Their discrete actions are sampled; the logits say which one ours takes.
    with torch.no_grad():
        given = torch.tensor(seen, dtype=torch.float)  # as their select_action has it
        out, logits = agent.policy(agent.encoder.zs(given))
    actions = logits.argmax(1) if discrete else max_action * out
    if not discrete:
        each = np.stack([agent.select_action(x, use_exploration=False) for x in seen])
        np.testing.assert_allclose(each, actions.numpy(), atol=1e-5)
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as saved:
        agent.save(saved)
        for file in ("encoder.pt", "policy.pt", "value.pt", "agent_var.npy"):
            (folder / file).write_bytes((Path(saved) / file).read_bytes())
    np.savez_compressed(folder / "expected.npz", obs=seen, actions=actions.numpy(), logits=logits.numpy())


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    record("pendulum", obs_dim=3, action_dim=1, max_action=2.0, discrete=False)
    record("cartpole", obs_dim=4, action_dim=2, max_action=1.0, discrete=True)
    record("pong", obs_dim=0, action_dim=6, max_action=1.0, discrete=True, history=4)
