"""The real command, one task of each family, and everything that can be done with its run."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dr_q
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.envs.families import humanoid_bench
from dr_q.envs.rendering import choose_backend
from dr_q.policies.watch import _encoder, evaluate_policy, frame_schedule, record_video
from dr_q.run_folder.source import source_digest
from dr_q.spaces import SINGLE, ContinuousActions
from dr_q.training.versions import versions
from tests.envs import toys
from tests.policies.test_policy import policy_of
from tests.training import tiny

DR_Q = Path(sys.executable).with_name("dr-q")


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def check_run(out: Path, task: str, seeds: list[int]) -> None:
    info = json.loads((out / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["settings"]["task"] == task
    assert info["settings"]["config"]["batch_size"] == 16
    assert info["versions"]["jax"]
    assert info["versions"]["source"] == source_digest()
    evals = rows(out / "evals.csv")
    assert list(evals[0]) == [
        "seed",
        "agent_steps",
        "env_frames",
        "return_mean",
        "return_std",
        "length_mean",
        "episodes",
    ]
    assert [(int(r["agent_steps"]), int(r["seed"])) for r in evals] == [(n, s) for n in (0, 40, 80, 120) for s in seeds]
    assert (out / "checkpoints" / "120" / "checkpoint.json").exists()
    assert list((out / "tensorboard").iterdir())
    for seed in seeds:
        assert (out / "policy" / f"seed{seed}.safetensors").exists()


def check_export(run: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half the bytes, nearly the same actions, and a card with figures of these very weights."""
    half = ["--precision", "float16"]
    assert main(["export", str(run), "--out", str(out), "--episodes", "2", *half]) == 0
    said, checked = capsys.readouterr().out.splitlines()[-2:]
    assert "float16 changed actions by at most" in checked
    assert "ms per action" in checked
    whole, given = dr_q.load(run), dr_q.load(out)
    obs = np.random.default_rng(0).normal(size=(8, *whole.obs_shape))
    np.testing.assert_allclose(whole.act(obs), given.act(obs), atol=0.01)
    assert not np.array_equal(whole.act(obs), given.act(obs))
    sizes = [(folder / "seed0.safetensors").stat().st_size for folder in (run / "policy", out)]
    assert sizes[1] < 0.6 * sizes[0]
    card = (out / "README.md").read_text()
    last = rows(run / "evals.csv")[-1]
    assert f"| {float(last['return_mean']):.1f} +- {float(last['return_std']):.1f} |" in card
    played = said.partition("return ")[2].strip()
    assert f"| these weights, 2 fresh episodes played by dr-q | {played} |" in card
    assert f"--steps {tiny.STEPS}" in card
    again = out.with_name("again")  # what is known of the training goes along
    assert main(["export", str(out), "--out", str(again), "--episodes", "1", *half]) == 0
    capsys.readouterr()
    copy = (again / "README.md").read_text()
    assert "| these weights, 1 fresh episode played by dr-q |" in copy
    assert copy.partition("## Training")[2] == card.partition("## Training")[2] != ""
    titles = [[line for line in text.splitlines() if line.startswith("# ")] for text in (copy, card)]
    assert titles[0] == titles[1] != []
    assert main(["export", str(run), "--out", str(out)]) == 2
    assert "is not empty; choose another --out" in capsys.readouterr().err
    assert main(["export", str(run), "--out", str(out / "other"), "--seed", "7"]) == 2
    assert "no seed 7 in" in capsys.readouterr().err
    file = out / "seed0.safetensors"
    assert file.stat().st_mode == (out / "policy.json").stat().st_mode  # who may read the one may read the other
    weights = load_file(file)
    name = next(iter(weights))
    save_file({**weights, name: weights[name][:-1].copy()}, file)
    for command in (["eval", str(out)], ["export", str(out), "--out", str(out / "other"), "--episodes", "0"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"'{name}' has shape" in error
        assert "it belongs to another environment, or another version of dr-q" in error
        assert error.count("\n") == 1
    file.write_bytes(b"half")
    assert main(["eval", str(out)]) == 1
    assert f"{file} cannot be read" in capsys.readouterr().err
    for damage in ("{", "null"):
        (out / "policy.json").write_text(damage)
        assert main(["eval", str(out)]) == 1
        assert "policy.json is damaged: it has no task" in capsys.readouterr().err


@pytest.mark.slow
def test_pixels_through_the_command(tmp_path, monkeypatch):
    """With small batches, and few evaluations of short episodes: convolutions and drawing are slow."""
    monkeypatch.setattr("dr_q.envs.families.dmc.EPISODE_FRAMES", 100)  # one seed's simulators are in this process
    out = tmp_path / "run"
    few = tiny.flags(batch_size=4, eval_every=tiny.STEPS, eval_episodes=1)
    assert main(["train", "dmc-visual/cartpole-swingup", "--out", str(out), *few]) == 0
    assert [row["agent_steps"] for row in rows(out / "evals.csv")] == ["0", "120"]
    assert dr_q.load(out).act(np.zeros((9, 84, 84), np.uint8)).shape == (1,)


@pytest.mark.skipif(not humanoid_bench.installed(), reason="HumanoidBench is on no registry; see the README")
def test_humanoid_bench_through_the_command(tmp_path):
    out = tmp_path / "run"
    assert main(["train", "hbench/h1-walk-v0", "--out", str(out), *tiny.flags()]) == 0
    check_run(out, "hbench/h1-walk-v0", [0])


@pytest.mark.parametrize("task", ["gym/Hopper-v4", "dmc/cartpole-swingup"])
def test_train_eval_plot_on_each_family(task, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", task, "--out", str(out), *tiny.flags()]) == 0
    check_run(out, task, [0])
    text = capsys.readouterr().out
    assert "step 120 of 120: return" in text
    assert f"finished: {out}" in text
    assert main(["eval", str(out), "--episodes", "2"]) == 0
    text = capsys.readouterr().out
    assert "seed 0, 120 agent steps: return" in text  # of one seed none is the best
    assert not np.allclose(
        evaluate_policy(out, None, 2)[1].returns.mean(), float(rows(out / "evals.csv")[-1]["return_mean"])
    )
    assert main(["plot", str(out), "--out", str(tmp_path / "curve.png")]) == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    check_export(out, tmp_path / "given", capsys)
    policy = dr_q.load(out)
    env = make_env(task)
    obs = env.reset(0)[SINGLE]
    action = policy.act(obs)
    assert isinstance(env.spec.action, ContinuousActions)
    assert action.shape == (env.spec.action.dim,)
    assert (action >= np.array(env.spec.action.low) - 1e-6).all()
    np.testing.assert_allclose(policy.act(np.stack([obs, obs]))[1], action, rtol=1e-5, atol=1e-6)


def test_video_of_a_policy(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "gym/Hopper-v4", "--out", str(out), *tiny.flags()]) == 0
    assert main(["video", str(out)]) == 0
    assert "at 41.7 frames/s" in capsys.readouterr().out
    video = out / "video.mp4"
    assert b"ftyp" in video.read_bytes()[:16]
    import imageio_ffmpeg

    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    raw = subprocess.run(
        [ffmpeg, "-loglevel", "error", "-i", str(video), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    ).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, 480, 480, 3)
    done = record_video(out, tmp_path / "again.mp4", None)
    assert len(frames) == 1 + math.ceil(done.agent_steps / 3) > 3  # of 125 steps a second every third is shown
    told = subprocess.run([ffmpeg, "-i", str(video)], capture_output=True, text=True, check=False).stderr
    assert float(re.findall(r"([0-9.]+) fps", told)[0]) == pytest.approx(125 / 3, abs=0.01)
    minutes, seconds = re.findall(r"Duration: 00:([0-9]+):([0-9.]+)", told)[0]
    assert 60 * int(minutes) + float(seconds) == pytest.approx(len(frames) * 3 / 125, abs=0.02)
    assert main(["video", str(out), "--out", str(tmp_path / "video.nothing")]) == 2
    assert "video.nothing is not an MP4 file's name; end it in .mp4" in capsys.readouterr().err
    assert main(["video", str(out), "--out", str(video / "below.mp4")]) == 2
    assert f"cannot use {video / 'below.mp4'}: Not a directory" in capsys.readouterr().err
    odd = tmp_path / "odd.mp4"
    with _encoder(ffmpeg, odd, 63, 65, 10.0) as pipe:
        pipe.write(np.zeros((2, 65, 63, 3), np.uint8).tobytes())
    assert b"ftyp" in odd.read_bytes()[:16]
    assert frames[0].std() > 5
    assert not np.array_equal(frames[0], frames[-1])


def test_another_version_has_another_digest(tmp_path):
    package = shutil.copytree(Path(dr_q.__file__).parent, tmp_path / "dr_q")
    assert source_digest(package) == source_digest()
    (package / "agent" / "losses.py").write_text("\n")
    changed = source_digest(package.rename(tmp_path / "changed"))
    assert re.fullmatch("[0-9a-f]{12}", changed)
    assert changed != source_digest()


def test_runs_of_humanoid_bench_say_which_one_it_was(tmp_path, monkeypatch):
    package = tmp_path / humanoid_bench.PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, humanoid_bench.PACKAGE, raising=False)  # the real one, where it is installed
    assert versions("hbench/h1-walk-v0")["humanoid-bench"] == source_digest(package)
    assert "humanoid-bench" not in versions("gym/Hopper-v4")


@pytest.mark.parametrize(
    ("task", "every", "rate"),
    [("gym/Hopper-v4", 3, 125 / 3), ("gym/Ant-v4", 1, 20), ("dmc/cheetah-run", 1, 50), ("dmc/humanoid-walk", 1, 20)],
)
def test_a_video_plays_in_simulated_time(task, every, rate):
    env = make_env(task)
    assert frame_schedule(env.spec.step_seconds) == (every, pytest.approx(rate))
    env.close()
    assert frame_schedule(None) == (1, 30)
    assert frame_schedule(1 / 60) == (1, pytest.approx(60))


@pytest.mark.parametrize("command", ["--help", "presets"])
def test_a_reader_that_leaves_gets_no_traceback(command):
    with subprocess.Popen([DR_Q, command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141


def test_an_interrupted_command_gives_one_line(monkeypatch, capsys):
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dr_q.cli.Version.run", interrupted)
    assert main(["version"]) == 130
    assert capsys.readouterr().err == "dr-q: interrupted\n"


@pytest.mark.slow
def test_several_seeds_through_the_installed_command(tmp_path):
    out = tmp_path / "run"
    arguments = ["train", "gym/Hopper-v4", "--seeds", "2", "--seed", "5", "--out", str(out), *tiny.flags()]
    done = subprocess.run([str(DR_Q), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check_run(out, "gym/Hopper-v4", [5, 6])
    assert "(seeds: " in done.stdout
    assert "paper 2504 at 1,000,000" in done.stdout


def test_a_callable_with_callback_and_noise(tmp_path):
    seen = []
    outcome = dr_q.train(
        toys.Walk,
        seeds=2,
        steps=tiny.STEPS,
        out=tmp_path / "run",
        noise_dims=3,
        on_evaluation=lambda evaluations: seen.append([e.return_mean for e in evaluations]),
        **tiny.RUN,
        **tiny.SIZES,
    )
    assert outcome.status == "finished"
    assert len(seen) == 4
    assert all(len(part) == 2 for part in seen)
    check_run(tmp_path / "run", "callable:tests.envs.toys.Walk", [0, 1])
    assert dr_q.load(tmp_path / "run", seed=1).act(np.zeros(4)).shape == (1,)


@pytest.mark.slow
def test_an_unguarded_script_may_use_several_seeds(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import dr_q\nfrom tests.envs import toys\n"
        "def make():\n    return toys.Walk()\n"
        f"dr_q.train(make, seeds=2, steps=60, out={str(tmp_path / 'run')!r}, eval_every=60, eval_episodes=1,\n"
        f"           quiet=True, **{tiny.SIZES!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, str(script)], check=True, env=environment)
    assert len(rows(tmp_path / "run" / "evals.csv")) == 4


def test_lists(capsys):
    assert main(["tasks", "dmc-visual", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 12
    assert main(["tasks"]) == 0
    assert "hbench/h1-sit_hard-v0" in capsys.readouterr().out
    assert main(["presets"]) == 0
    assert "only-forget" in capsys.readouterr().out
    assert main(["version"]) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="backends of Linux")
def test_an_opengl_backend_that_cannot_be_imported_is_left_out(monkeypatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    for given, taken in (("nonsense", "disable"), ("osmesa", "disable"), ("EGL", "EGL"), ("off", "off")):
        monkeypatch.setenv("MUJOCO_GL", given)
        choose_backend()
        assert os.environ["MUJOCO_GL"] == taken


def test_what_cannot_be_drawn_is_one_line(tmp_path, capsys, monkeypatch):
    def render(*_: Any) -> None:
        raise RuntimeError("no driver")

    policy_of("dmc/cartpole-balance", tmp_path / "run")
    file = tmp_path / "run" / "policy" / "policy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "task": "dmc/cartpole-balance"}))
    monkeypatch.setattr("dr_q.envs.families.dmc.DmcEnv.render", render)
    assert main(["video", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dr-q: nothing can be drawn here: RuntimeError: no driver (")
    assert (error.count("\n"), error.endswith("; dr-q doctor says what works\n")) == (1, True)


def test_doctor_names_the_fix_and_the_memory(capsys, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    assert main(["doctor", "dmc/humanoid-run", "--seeds", "10"]) == 0
    text = capsys.readouterr().out
    assert "ok  gym/Hopper-v4: loads and resets" in text
    assert "HumanoidBench (optional)" in text
    assert "--  wandb (optional, for --wandb): not installed  ->  pip install 'dr-q[wandb]'" in text
    assert "rendering (pixels, videos)" in text
    assert "replay of 507,904 slots: " in text
    assert "\nmain memory: " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "dmc/dog-rum"], "unknown task 'dmc/dog-rum'; did you mean 'dmc/dog-run'? List: dr-q tasks dmc"),
        (["train"], "no task given"),
        (["train", "gym/Hopper-v4", "--preset", "mrq"], "unknown preset 'mrq'; did you mean 'mr.q'?"),
        (
            ["train", "gym/Hopper-v4", "--batch-size", "0"],
            "--batch-size must be a whole number between 1 and 65536, got 0",
        ),
        (["train", "gym/Hopper-v4", "--seeds", "0"], "--seeds must be a whole number between 1 and 1000, got 0"),
        (
            ["train", "tests.envs.toys:drq-unbounded-v0"],
            "tests.envs.toys:drq-unbounded-v0 has actions in Box(-inf, inf",
        ),
        (["train", "--resume", "nowhere"], "nowhere is not a run: it has no run.json"),
        (["eval", "nowhere"], "no policy in nowhere"),
        (["plot", "nowhere"], "nowhere is not there; give a run's folder"),
        (["tasks", "ataris"], "unknown suite 'ataris'"),
        (["bench", "dmc/dog-rum"], "unknown task 'dmc/dog-rum'; did you mean 'dmc/dog-run'? List: dr-q tasks dmc"),
        (["bench", "--steps", "0"], "--steps must be a whole number between 1 and 1000000000, got 0"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dr-q: {message}")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing may be left behind"


def test_episodes_too_short_to_learn_from_are_explained(tmp_path, capsys):
    class Short(toys.Toy):
        def outcome(self, action):
            return 0.0, False, self.t == 3

    with pytest.raises(RuntimeError, match="has no window of 5 transitions to learn from"):
        dr_q.train(Short, steps=tiny.STEPS, out=tmp_path / "run", **tiny.RUN, **tiny.SIZES)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
