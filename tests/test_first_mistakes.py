"""What newcomers get wrong, and what they are told."""

import gymnasium
import numpy as np
import pytest

import dr_q
from dr_q.config import check_names
from dr_q.envs import make_env
from dr_q.kit import ConfigError, EnvError, RunFolderError, TaskError
from dr_q.report.results import train_command
from dr_q.settings import default_checkpoint_every, make_settings
from tests.envs import toys
from tests.training import tiny


class Arm(toys.Walk):
    """Observes a Dict; `wrong` names an entry that is not of its space."""

    observation_space = gymnasium.spaces.Dict(
        {"joints": gymnasium.spaces.Box(-9, 9, (2,)), "near": gymnasium.spaces.Discrete(2)}
    )

    def __init__(self, wrong: str = ""):
        super().__init__()
        self.wrong = wrong

    def _obs(self):
        return {"joints": np.zeros(3 if self.wrong == "joints" else 2, np.float32), "near": 1}

    def reset(self, *, seed=None, options=None):  # pyright: ignore[reportIncompatibleMethodOverride] - another space
        return self._obs(), super().reset(seed=seed)[1]

    def step(self, action):
        _, reward, terminated, truncated, info = super().step(action)
        return self._obs(), reward, terminated, truncated, info


@pytest.fixture(scope="module")
def arm_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("arm") / "run"
    dr_q.train(Arm, steps=80, out=run, **{**tiny.RUN, **tiny.SIZES})
    return run


def test_the_entry_that_is_wrong_is_named():
    env = make_env(lambda: Arm("joints"))
    with pytest.raises(EnvError, match=r"gave an observation whose 'joints' is of shape \(3,\); its space is Box"):
        env.reset(0)


def test_a_callable_that_gives_nothing():
    with pytest.raises(TaskError, match="it gave None; is its return missing"):
        make_env(lambda: None)


def test_a_registered_environment_is_suggested_in_the_spelling_that_every_process_knows():
    gymnasium.register("drq-arm-v0", entry_point=f"{__name__}:Arm")
    try:
        with pytest.raises(TaskError, match=f"did you mean '{__name__}:drq-arm-v0'"):
            make_env("drq-arm-v0")
        with pytest.raises(TaskError, match="did you mean 'gym/Pendulum-v1'"):
            make_env("Pendulum-v1")
    finally:
        gymnasium.registry.pop("drq-arm-v0")


def test_names_of_other_libraries():
    with pytest.raises(ConfigError, match="unknown setting 'total_timesteps'; did you mean 'steps'"):
        check_names(["total_timesteps"], ["steps"])
    with pytest.raises(ConfigError, match="did you mean 'discount'"):
        dr_q.preset("dr.q", gamma=0.9)


def test_an_observation_with_its_info(arm_run):
    policy = dr_q.load(arm_run)
    with pytest.raises(ValueError, match="give the observation alone"):
        policy.act(Arm().reset(seed=0))
    assert policy.act(Arm().reset(seed=0)[0]).shape == (1,)


def test_a_card_lists_the_entries_of_a_dict(arm_run, tmp_path):
    done = dr_q.export_policy(arm_run, tmp_path / "arm", form="numpy", episodes=0, which="best")
    card = (done.folder / "README.md").read_text()
    assert '# obs as the environment gives it: {"joints": float32 (2,), "near": int64 ()}' in card
    with pytest.raises(RunFolderError, match="it is an export that runs without dr-q"):
        dr_q.load(done.folder)


def test_folders_without_a_policy(arm_run, tmp_path):
    with pytest.raises(RunFolderError, match="give one of the runs in it: run"):
        dr_q.load(arm_run.parent)
    with pytest.raises(RunFolderError, match="there is no such folder"):
        dr_q.load(tmp_path / "nowhere")


def test_latents_take_actions_as_the_agent_acts(arm_run):
    run = dr_q.open_run(arm_run)
    obs = np.zeros((2, *run.spaces.obs.parts[0][1].shape), np.float32)
    with pytest.raises(ConfigError, match=r"actions up to 2; expected \[-1, 1\]"):
        run.latents(obs, np.full((2, 1), 2.0))
    with pytest.raises(ConfigError, match="expected"):
        run.latents(obs, np.full((2, 1), np.nan))


def test_short_runs_have_checkpoints_too():
    assert [default_checkpoint_every(n) for n in (500, 5_000, 15_000, 125_000, 10**6)] == [
        1000,
        1000,
        3000,
        25_000,
        25_000,
    ]
    assert make_settings("gym/Pendulum-v1", steps=15_000).checkpoint_every == 3_000
    assert make_settings("gym/Pendulum-v1", steps=15_000, checkpoint_every=7).checkpoint_every == 7


def test_the_command_of_a_preset_of_a_file_has_what_it_changes(tmp_path):
    (tmp_path / "mine.toml").write_text('[drq-mine]\nbase = "quick"\ninfonce_weight = 0.5\n')
    dr_q.load_presets(tmp_path / "mine.toml")
    try:
        record = make_settings("gym/Pendulum-v1", preset_name="drq-mine", steps=100).to_json()
        command = train_command({"settings": record, "changed": {}})
    finally:
        dr_q.PRESETS.pop("drq-mine")
    assert "--preset" not in command
    assert "--infonce-weight 0.5" in command
    assert "--batch-size 64" in command
