"""Agents that the authors' code saved (`record_authors_agent.py` made them) act here as they do there."""

import importlib.util
import io
import pickle
import shutil
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

import dr_q
from dr_q import agent as drq
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.cli import main
from dr_q.config import config_from_json, preset
from dr_q.learner import Learner, LearnerSpec
from dr_q.networks import critic_from_torch
from dr_q.policies.torch_files import read_saved_variables, read_state_dict
from dr_q.run_folder import policy_file, policy_record, read_policy_weights
from dr_q.training.initial_weights import read_initial_weights

AGENTS = Path(__file__).parents[1] / "data" / "authors-agent"
TASKS = {"pendulum": "gym/Pendulum-v1", "cartpole": "gym/CartPole-v1", "pong": "atari/Pong"}


@pytest.fixture
def saved(tmp_path):
    shutil.copytree(AGENTS, tmp_path / "agents")
    return tmp_path / "agents"


@pytest.mark.parametrize("name", TASKS)
def test_it_acts_as_in_the_authors_code(name, saved, capsys):
    folder = saved / name
    assert main(["import-authors", str(folder), "--task", TASKS[name]]) == 0
    # 100 steps of which 60 filled the replay, which also counts the ends of episodes.
    assert capsys.readouterr().out == (
        f"{folder / 'policy'}: {TASKS[name]}, about 102 agent steps; encoder, actor and critics\n"
    )
    policy, expected = dr_q.load(folder), np.load(folder / "expected.npz")
    np.testing.assert_allclose(policy.act(expected["obs"]), expected["actions"], atol=2e-5)
    networks = policy.networks
    logits = networks.actor.pre_activation(networks.z_s({"obs": jax.numpy.asarray(expected["obs"])}))
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)
    assert (policy.task, policy.seed, policy.agent_steps) == (TASKS[name], 0, 102)
    config = policy.record["config"]
    assert (config["encoder_hidden"], config["zs_dim"], config["actor_hidden"]) == (70, 16, 24)
    assert (config["batch_size"], config["target_period"], config["exploration_steps"]) == (16, 20, 60)


def test_eval_and_export_take_it(saved, tmp_path, capsys):
    folder = saved / "pendulum"
    out = tmp_path / "imported"
    words = ["import-authors", str(folder), "--task", "gym/Pendulum-v1", "--out", str(out), "--seed", "7"]
    assert main([*words, "--agent-steps", "123"]) == 0
    assert main(["eval", str(out), "--episodes", "1"]) == 0
    assert "gym/Pendulum-v1, seed 7, 123 agent steps: return -" in capsys.readouterr().out
    assert main(["export", str(out), "--out", str(tmp_path / "out"), "--format", "numpy", "--episodes", "0"]) == 0
    assert "Trained by the authors' code" in (tmp_path / "out" / "README.md").read_text()
    assert main([*words]) == 2
    assert "is not empty; choose another --out" in capsys.readouterr().err


def test_its_file_holds_all_weights_of_the_online_networks(saved):
    """Under the names of `Networks`, so that training can begin with them."""
    folder = saved / "pendulum"
    assert main(["import-authors", str(folder), "--task", "gym/Pendulum-v1"]) == 0
    record, policy = policy_record(folder), dr_q.load(folder)
    weights = read_policy_weights(policy_file(folder, record, None)[0], record)
    named = {f"encoder.{name}" if name.startswith("state.") else name: x for name, x in weights.items()}
    config = config_from_json(record["config"])
    template = jax.eval_shape(lambda: drq.init_networks(config, policy.spaces, jax.random.key(0)))
    networks = fill_tree(template, named, "the file")
    assert len(jax.tree.leaves(template)) == len(named)
    theirs = critic_from_torch(read_state_dict(folder / "value.pt"), activation="elu")
    z_sa = jax.random.normal(jax.random.key(0), (4, 16))
    np.testing.assert_array_equal(networks.critic(z_sa), theirs(z_sa))


SIZES = {"batch_size": 16, "zs_dim": 16, "zsa_dim": 16, "za_dim": 8, "encoder_hidden": 70, "actor_hidden": 24}
SIZES |= {"critic_hidden": 24}


def test_training_begins_with_all_of_it_and_in_its_units(saved):
    folder = saved / "pendulum"
    assert main(["import-authors", str(folder), "--task", "gym/Pendulum-v1"]) == 0
    spaces = dr_q.load(folder).spaces
    taken = read_initial_weights(str(folder / "policy"), preset("dr.q", **SIZES), spaces, [0, 1])
    record = taken.record
    assert record["taken"] == "state encoder f, actor, latent model g and M, critics"
    assert record["fresh"] == "optimisers, replay"
    np.testing.assert_allclose(taken.arrays["reward_scale"], [14.740060806274414] * 2)
    learner = Learner(LearnerSpec(preset("dr.q", **SIZES), spaces, 64), [0, 1])
    learner.begin_agents(taken.arrays)
    agents = learner.states.agents
    np.testing.assert_allclose(agents.reward_scale, [14.740060806274414] * 2)
    np.testing.assert_allclose(agents.target_reward_scale, [14.740060806274414] * 2)
    theirs = critic_from_torch(read_state_dict(folder / "value.pt"), activation="elu")
    for name, x in named_arrays(theirs).items():
        np.testing.assert_array_equal(named_arrays(agents.online.critic)[name][1], x)
    with pytest.raises(dr_q.ConfigError, match=r"has other networks than critic_hidden 16: give critic_hidden=24"):
        read_initial_weights(str(folder / "policy"), preset("dr.q", **{**SIZES, "critic_hidden": 16}), spaces, [0])
    changed = preset("dr.q", **SIZES, reward_range=(-3.0, 3.0))
    with pytest.raises(
        dr_q.ConfigError, match=r"other networks than reward_range -3.0 3.0: give reward_range=.-10.0, 10.0."
    ):
        read_initial_weights(str(folder / "policy"), changed, spaces, [0])


def test_critics_may_be_missing(saved, capsys):
    folder = saved / "pendulum"
    (folder / "value.pt").unlink()
    (folder / "agent_var.npy").unlink()
    assert main(["import-authors", str(folder), "--task", "gym/Pendulum-v1"]) == 0
    assert "0 agent steps; encoder and actor; no value.pt, so no critics" in capsys.readouterr().out
    policy = dr_q.load(folder)
    assert policy.act(np.zeros(3)).shape == (1,)
    small = preset("dr.q", **{**SIZES, "critic_hidden": 16})
    record = read_initial_weights(str(folder / "policy"), small, policy.spaces, [0]).record
    assert record["taken"] == "state encoder f, actor, latent model g and M"
    assert record["fresh"] == "critics, optimisers, replay"


@pytest.mark.parametrize(
    ("damage", "task", "code", "said"),
    [
        (lambda f: (f / "encoder.pt").unlink(), "gym/Pendulum-v1", 2, "no encoder.pt in"),
        (
            lambda f: None,
            "gym/Hopper-v4",
            2,
            "takes 3 and gives 1 numbers (vectors); gym/Hopper-v4 gives 11 and takes 3",
        ),
        (lambda f: None, "gym/Pendulum-v2", 2, "Pendulum"),
        (lambda f: (f / "policy.pt").write_bytes(b"half"), "gym/Pendulum-v1", 1, "policy.pt cannot be read"),
        (lambda f: shutil.copy(f / "value.pt", f / "policy.pt"), "gym/Pendulum-v1", 1, "no array policy.l3.bias"),
        (lambda f: shutil.copy(f / "policy.pt", f / "value.pt"), "gym/Pendulum-v1", 1, "q1.q1.l1.weight"),
        (lambda f: (f / "agent_var.npy").write_bytes(b"x"), "gym/Pendulum-v1", 1, "agent_var.npy cannot be read"),
    ],
)
def test_what_is_no_such_agent_is_refused_in_one_line(damage, task, code, said, saved, capsys):
    folder = saved / "pendulum"
    damage(folder)
    assert main(["import-authors", str(folder), "--task", task]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (folder / "policy").exists()


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("it-ran"),))


def test_nothing_that_a_file_asks_for_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("x.pt", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"weight": Harmful()}))
    with pytest.raises(dr_q.DamagedFileError, match=r"x\.pt cannot be read .* it asks for"):
        read_state_dict(Path("x.pt"))
    np.save("x.npy", np.array({"training_steps": 3, "hp": Harmful()}))
    assert read_saved_variables(Path("x.npy"))["training_steps"] == 3
    assert not Path("it-ran").exists()


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install torch==2.13.0"
)
def test_files_are_read_as_torch_reads_them(tmp_path):
    import torch  # pyright: ignore[reportMissingImports]

    whole = torch.arange(24.0).reshape(4, 6)
    saved = {"a": whole, "b": whole[1:3, ::2], "c": whole.T, "d": torch.tensor([1, 2]), "e": torch.tensor(2.5)}
    torch.save(saved, tmp_path / "x.pt")
    found = read_state_dict(tmp_path / "x.pt")
    for name, x in saved.items():
        np.testing.assert_array_equal(found[name], x.numpy())
    torch.save(torch.nn.Linear(2, 3), tmp_path / "x.pt")
    with pytest.raises(dr_q.DamagedFileError, match=r"it asks for torch\.nn"):
        read_state_dict(tmp_path / "x.pt")
    buffer = io.BytesIO()
    torch.save(saved, buffer, _use_new_zipfile_serialization=False)
    (tmp_path / "x.pt").write_bytes(buffer.getvalue())
    with pytest.raises(dr_q.DamagedFileError, match=r"cannot be read as a file of torch\.save"):
        read_state_dict(tmp_path / "x.pt")
