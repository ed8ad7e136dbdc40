"""The paper's analyses on small runs: numbers against direct computation, and the commands with their figures."""

import csv
import dataclasses
import functools
import itertools
import math
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.cli import main
from dr_q.config import preset
from dr_q.diagnostics import analyse
from dr_q.equations import faded_probability, infonce, lap_priority, td_error
from dr_q.learner.saving import load
from dr_q.report.analyses import Information, Measure, Origin
from dr_q.spaces import SINGLE, ContinuousActions, ObsSpec, Spaces
from tests.training import tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two runs with two seeds and one with one; three checkpoints each."""
    where = tmp_path_factory.mktemp("runs")
    settings = {**tiny.RUN, **tiny.SIZES, "eval_episodes": 1, "eval_every": tiny.STEPS, "in_process": True}
    for name, first, seeds in (("first", 0, 2), ("second", 2, 2), ("single", 0, 1)):
        task = "gym/tests.envs.toys:drq-walk-v0"
        dr_q.train(task, seed=first, seeds=seeds, steps=tiny.STEPS, out=where / name, **settings)
    return where


def rows(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_one_seed_of_a_checkpoint_is_what_the_whole_checkpoint_holds(folders):
    run = analyse.open_run(folders / "first")
    whole = load(run.checkpoints, 120, run.spec(120)).states
    for index, seed in enumerate(run.seeds):
        loaded, agent = analyse.load_replay(run, 120, seed), analyse.load_agent(run, 120, seed)
        storage = whole.replays.storage
        assert storage.obs is not None
        np.testing.assert_array_equal(loaded.frames[SINGLE], storage.obs[SINGLE][index])
        np.testing.assert_array_equal(loaded.replay.storage.stamp, storage.stamp[index])
        for a, b in zip(jax.tree.leaves(agent), jax.tree.leaves(whole.agents), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b)[index])


def test_tsne_has_the_points_asked_for_and_repeats(folders):
    run = analyse.open_run(folders / "first")
    found = analyse.embed(run, samples=50)
    assert found.points.shape == (50, 2)
    assert np.isfinite(found.points).all()
    assert len(set(found.age)) == 50, "drawn without replacement"
    np.testing.assert_array_equal(found.points, analyse.embed(run, samples=50).points)
    reward = analyse.embed(run, samples=20, colour="reward")
    loaded = analyse.load_replay(run, 120, 0)
    stored = {
        int(age): float(loaded.replay.storage.reward[slot]) for age, slot in zip(loaded.age, loaded.starts, strict=True)
    }
    assert [stored[int(age)] for age in reward.age] == pytest.approx(reward.colour)


def test_values_of_a_figure_are_those_of_the_networks(folders):
    """MR.Q's critics learn in units of the mean absolute reward; the figure's are the environment's."""
    run = analyse.open_run(folders / "single")
    loaded = analyse.load_replay(run, 120, 0)
    agent = dataclasses.replace(analyse.load_agent(run, 120, 0), reward_scale=jnp.asarray(3.0))
    slots = loaded.starts[:7]
    z_sa, value = analyse.z_sa_of(loaded, agent, slots)
    obs, action = loaded.frames[SINGLE][slots], np.asarray(loaded.replay.storage.action)[slots]
    encoder = agent.online.encoder
    expected = encoder.z_sa(encoder.z_s({SINGLE: jnp.asarray(obs)}), jnp.asarray(action))
    np.testing.assert_allclose(z_sa, expected, rtol=1e-4, atol=1e-5)
    q = np.asarray(agent.online.critic(expected)).min(axis=-1)
    np.testing.assert_allclose(value, 3 * q, rtol=1e-4, atol=1e-5)


def test_td_errors_are_those_of_an_update(folders):
    """Without noise in the target, the priority that an update would write is the TD error's."""
    run = analyse.open_run(folders / "first")
    loaded, agent = analyse.load_replay(run, 120, 1), analyse.load_agent(run, 120, 1)
    config = preset("dr.q", **{**tiny.SIZES, "target_noise": 0.0, "min_priority": 1e-6})
    slots = loaded.starts[-16:]
    error = analyse.td_errors(config, loaded, agent, slots)
    at = rp.n_step_frames(loaded.replay.storage, jnp.asarray(slots), config.q_horizon)[SINGLE]
    frames = {SINGLE: jnp.asarray(loaded.frames[SINGLE][np.asarray(at)])}
    replay = dataclasses.replace(loaded.replay, sampler=rp.make_sampler(config))
    draw = drq.CriticDraw(jnp.asarray(slots), jax.random.key(1), jax.random.key(2))
    update = jax.jit(functools.partial(drq.learn_actor_critic, config))
    _, after, seen = update(agent, replay, draw, frames)
    np.testing.assert_allclose(error, seen.td_error, rtol=1e-4)
    expected = lap_priority(td_error(seen.q, seen.q_target), config.min_priority, config.priority_exponent)
    np.testing.assert_allclose(after.sampling.priority.reshape(-1)[slots], expected, rtol=1e-6)


def test_priorities_by_age(folders):
    run = analyse.open_run(folders / "first")
    found = analyse.priorities(run, newest=60)
    loaded = analyse.load_replay(run, 120, 0)
    assert sum(bucket.probability for bucket in found.buckets) == pytest.approx(1, abs=1e-5)
    assert sum(bucket.transitions for bucket in found.buckets) == len(loaded.starts)
    assert found.age.max() < 60
    assert found.buckets[-1].first == 60, "what is older has a bucket of its own"
    assert math.isnan(found.buckets[-1].td_error[1])
    assert found.fading
    # By the definition of Eq. 10, walking every entry.
    config, replay = run.config, loaded.replay
    storage = replay.storage
    age = storage.clock - 1 - storage.stamp.reshape(-1)
    by_slot = replay.sampling.priority.reshape(-1), age, storage.valid.reshape(-1)
    chance = np.asarray(faded_probability(*by_slot, config.fade_decay, config.fade_floor))
    for bucket in found.buckets:
        inside = np.isin(np.asarray(age), range(bucket.first, bucket.last + 1))
        assert bucket.probability == pytest.approx(chance[inside].sum(), abs=1e-5)
    error = analyse.td_errors(config, loaded, analyse.load_agent(run, 120, 0), loaded.starts[loaded.age < 60])
    fade = (1 - config.fade_decay) ** found.age
    np.testing.assert_allclose(found.faded, error * fade, rtol=1e-4)


def test_age_buckets():
    assert analyse.bucket_edges(100_000) == [0, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]
    assert analyse.bucket_edges(60) == [0, 1, 2, 5, 10, 20, 50, 60]
    for newest in (1, 10, 119, 3_456, 1_000_000):
        edges = analyse.bucket_edges(newest)
        assert edges[0] == 0
        assert edges[-1] == newest
        assert all(a < b for a, b in itertools.pairwise(edges))


def test_information_is_the_bound_of_our_loss_on_the_other_seeds_transitions(folders):
    runs = [analyse.open_run(folders / name) for name in ("first", "second")]
    found = analyse.information(runs)
    assert [m.agent_steps for m in found[0].measures] == [40, 40, 80, 80, 120, 120]
    assert all(m.held_out for run in found for m in run.measures)
    # The first seed's networks on the second's replays, half of them from each run.
    parts = [analyse._sample(run, 1, 1280, after=0) for run in runs]
    fewest = min(len(part.reward) for part in parts)
    mixed = jax.tree.map(lambda *fields: jnp.concatenate([x[:fewest] for x in fields]), *parts)
    for run, information in zip(runs, found, strict=True):
        seed = run.seeds[0]
        agent = analyse.load_agent(run, 120, seed)
        encoder = agent.online.encoder
        z_sa = encoder.z_sa(encoder.z_s(mixed.obs), mixed.action)
        target = agent.target.encoder.z_s(mixed.next_obs)
        pred = encoder.predict(z_sa)
        measure = next(m for m in information.measures if (m.agent_steps, m.seed) == (120, seed))
        assert measure.negatives == len(mixed.reward) == 2 * fewest
        loss = float(jnp.mean(infonce(pred.z_s, target, 0.1)))
        assert measure.information == pytest.approx(math.log(measure.negatives) - loss, abs=1e-4)
        assert measure.information <= math.log(measure.negatives)
        assert measure.latent_mse == pytest.approx(float(jnp.mean((pred.z_s - target) ** 2)), rel=1e-4)


def test_a_single_seed_is_asked_about_what_came_later(folders):
    run = analyse.open_run(folders / "single")
    (found,) = analyse.information([run])
    assert [(m.agent_steps, m.held_out) for m in found.measures] == [(40, True), (80, True), (120, False)]
    loaded = analyse.load_replay(run, 120, 0)
    late = {int(age) for age in loaded.age if 119 - 1 - age >= 80}
    assert found.measures[0].negatives == len(late)
    assert "hollow" in analyse.information_note([found])


def information_of(changes: list[float]) -> Information:
    measures = [
        Measure(step, seed, True, 256, change * (step == 9), 0.1, 0.1)
        for step in (0, 9)
        for seed, change in enumerate(changes)
    ]
    return Information(Origin("run", "toy", "dr.q", None, 9), measures)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([1.0, 1.1, 0.9], "it rises"),
        ([-1.0, -1.1, -0.9], "it falls"),
        ([1.0, -1.1, 0.2], "no change is seen"),
        ([1.0, 1.1], "not decidable"),
    ],
)
def test_a_change_of_information_is_said_as_far_as_seeds_show_it(changes, said):
    assert said in information_of(changes).sentence()


def test_the_commands_write_figures_and_numbers(folders, tmp_path, capsys):
    two = [str(folders / "first"), str(folders / "second")]
    assert main(["analyse", "tsne", *two, "--out", str(tmp_path / "t.png")]) == 0
    points = rows(tmp_path / "t.csv")
    starts = [
        len(analyse.load_replay(analyse.open_run(Path(folder)), 120, 2 * i).starts) for i, folder in enumerate(two)
    ]
    assert [sum(row["name"] == name for row in points) for name in ("first", "second")] == starts
    assert f"has {starts[0]} transitions to draw, not 5,000: all are used" in capsys.readouterr().err
    assert main(["analyse", "priorities", *two, str(folders / "single"), "--out", str(tmp_path / "p.png")]) == 0
    by_run = {}
    for row in rows(tmp_path / "p.csv"):
        by_run[row["name"]] = by_run.get(row["name"], 0) + float(row["probability"])
    assert by_run == pytest.approx({"first": 1, "second": 1, "single": 1}, abs=1e-5)
    assert "has 119 transitions, not 100,000: all are used" in capsys.readouterr().err
    assert main(["analyse", "information", *two, "--out", str(tmp_path / "i.png")]) == 0
    assert len(rows(tmp_path / "i.csv")) == 12
    assert "with fewer than 3 seeds, not decidable" in capsys.readouterr().out
    for name in ("t", "p", "i"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_pixels_are_read_as_stacks():
    """A replay of frames gives the stacks that the networks saw."""
    spaces = Spaces(ObsSpec.image(3, 84, 84, stack=3), ContinuousActions((-1.0,), (1.0,)))
    replay = rp.init_replay(preset("dr.q", **tiny.SIZES), spaces, 64, frames_on_host=True)
    frames = np.zeros((64, 3, 84, 84), np.uint8)
    for step in range(12):
        frames[step] = step
        ended = jnp.zeros((), bool)
        replay = rp.add(replay, rp.Transition({}, jnp.zeros(1), jnp.zeros(()), {}, ended, ended))
    loaded = analyse.LoadedReplay(replay, {SINGLE: frames}, np.arange(7), np.arange(7)[::-1])
    steps = analyse.read_steps(loaded, np.array([0, 4]))
    assert steps.obs[SINGLE][:, ::3, 0, 0].tolist() == [[0, 0, 0], [2, 3, 4]]
    assert steps.next_obs[SINGLE][:, ::3, 0, 0].tolist() == [[0, 0, 1], [3, 4, 5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tsne", "nowhere"], "nowhere is not a run: it has no run.json"),
        (["tsne", "RUN", "--samples", "1"], "--samples must be a whole number between 4 and 1000000, got 1"),
        (["tsne", "RUN", "--seed", "7"], "RUN has no seed 7; it has 0, 1"),
        (["priorities", "RUN", "--at", "50"], "RUN has no checkpoint at step 50; it has 40, 80, 120"),
        (["priorities", "RUN", "--newest", "1"], "--newest must be a whole number between 10 and 1000000000, got 1"),
        (["information", "RUN", "--out", "x.csv"], "--out x.csv is not a PNG file's name; end it in .png"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(folders, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = str(folders / "first")
    assert main(["analyse", *(run if part == "RUN" else part for part in arguments)]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[-1].startswith(f"dr-q: {message.replace('RUN', run)}")
    assert not list(tmp_path.iterdir())


def test_a_run_without_checkpoint_is_named(folders, tmp_path, capsys):
    shutil.copytree(folders / "single", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    assert main(["analyse", "tsne", str(tmp_path / "run")]) == 2
    assert "has no checkpoint, which analyses read" in capsys.readouterr().err
