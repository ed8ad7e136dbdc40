"""Callbacks see a run, keep state in its checkpoints and stop it; what is built in does so on the command line too."""

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] - made at import

import dr_q
from dr_q.cli import main
from dr_q.config import preset
from dr_q.envs import PacketLayout, Transitions
from dr_q.kit import DamagedFileError
from dr_q.run_folder import Evaluation, policy_folder, read_run_json
from dr_q.spaces import SINGLE, ObsSpec
from dr_q.training.best import BestPolicies
from dr_q.training.callbacks import Callbacks, given_callbacks
from dr_q.training.episodes import EpisodeLog
from dr_q.training.evaluate import Evaluated
from tests.envs import toys
from tests.training import tiny
from tests.training.test_resume import assert_same

SETTINGS: dict[str, Any] = {**tiny.RUN, **tiny.SIZES}


class Tells(toys.Walk):
    """Says where it is, and whether it is near 0; something that is no number too."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        info = {"x": np.array([self.x]), "is_success": bool(abs(self.x) < 1), "words": "none"}
        return obs, reward, terminated, truncated, info


class Watch(dr_q.Callback):
    """Sums up everything it sees; may stop at a step."""

    info_keys = ("x", "words")

    def __init__(self, stop_at: int = -1):
        self.stop_at = stop_at
        self.seen: dict[str, Any] = {"steps": 0, "rewards": [], "x": 0.0, "episodes": [], "evaluations": []}
        self.calls: list[tuple[str, int]] = []

    def on_start(self, event):
        self.calls.append(("resumed" if event.resumed else "start", event.agent_steps))

    def on_step(self, event):
        if "episode_length" in event.run.metrics:  # also in the first step of a resumed run
            self.seen["metrics"] = {name: np.nan_to_num(x, nan=-1).tolist() for name, x in event.run.metrics.items()}
        assert ("episode_length" in event.run.metrics) == (event.agent_steps > 20)
        self.seen["steps"] += 1
        assert event.agent_steps == self.seen["steps"]
        rewards = self.seen["rewards"] or [0.0] * len(event.rewards)
        self.seen["rewards"] = [float(a + np.float64(b)) for a, b in zip(rewards, event.rewards, strict=True)]
        self.seen["x"] += float(event.info["x"].sum())
        assert np.isnan(event.info["words"]).all()
        return dr_q.Stop("far enough") if event.agent_steps == self.stop_at else None

    def on_episode(self, event):
        assert event.run.episode_returns[event.seed][-1] == event.episode_return
        assert event.success == (abs(event.info["x"]) < 1)
        numbers = [event.seed, event.agent_steps, event.episode_return, event.length, event.terminated, event.success]
        self.seen["episodes"].append(numbers)

    def on_evaluation(self, event):
        acts = [float(event.policy(seed).act(np.ones(1))[0]) for seed in event.run.seeds]
        self.seen["evaluations"].append([event.agent_steps, event.return_mean, acts])

    def on_checkpoint(self, event):
        assert (event.folder / "checkpoint.json").exists()
        self.calls.append(("checkpoint", event.agent_steps))

    def on_end(self, event):
        self.calls.append((f"{event.status} {event.stop_reason}".strip(), event.agent_steps))

    def state(self):
        return self.seen

    def restore(self, state):
        self.seen = state


def kept_in(run: Path, step: int = tiny.STEPS) -> dict[str, Any]:
    return json.loads((run / "checkpoints" / str(step) / "checkpoint.json").read_text())["loop"]


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{name: x for name, x in row.items() if not name.startswith("ms_")} for row in rows]


def tags_of(run: Path) -> set[str]:
    found: set[str] = set()
    for path in (run / "tensorboard").iterdir():
        data = path.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = Event()
            event.ParseFromString(data[12 : 12 + size])
            found |= {value.tag for value in event.summary.value}
            data = data[16 + size :]
    return found


def test_a_run_with_callbacks_resumes_to_the_byte_and_learns_what_it_would_without(tmp_path):
    """Two seeds in processes of their own; stopped by a callback in the middle of episodes."""
    settings = {**SETTINGS, "seeds": 2, "log_every": 20, "steps": tiny.STEPS}
    plain, whole, broken = (tmp_path / name for name in ("plain", "whole", "broken"))
    dr_q.train(Tells, out=plain, keep_best=False, **settings)
    one, first, second = Watch(), Watch(stop_at=85), Watch()
    dr_q.train(Tells, out=whole, callbacks=[one], **settings)
    stopped = dr_q.train(Tells, out=broken, callbacks=[first], **settings)
    assert (stopped.status, stopped.agent_steps, stopped.stop_reason) == ("stopped", 85, "far enough")
    record = read_run_json(broken)
    assert (record["status"], record["stop_reason"]) == ("stopped", "far enough")
    assert kept_in(broken, 85)["callbacks"] == {"Watch": first.seen}
    done = dr_q.train(Tells, resume=broken, callbacks=[second], quiet=True, log_every=20)
    assert (done.status, done.stop_reason) == ("finished", "")
    assert "stop_reason" not in read_run_json(broken)
    saved = [("checkpoint", step) for step in (40, 80, 85)]
    assert first.calls == [("start", 0), *saved, ("stopped far enough", 85)]
    assert second.calls == [("resumed", 85), ("checkpoint", 120), ("finished", 120)]

    assert_same(plain, whole)
    assert_same(whole, broken)
    assert second.seen == one.seen
    assert kept_in(whole) == kept_in(broken)
    assert {"critic_loss", "obs_std", "episodes"} <= set(one.seen["metrics"])
    assert not any(name.startswith(("ms_", "env_")) for name in one.seen["metrics"])
    best = [run / "policy" / "best" / name for run in (whole, broken) for name in ("policy.json", "seed1.safetensors")]
    assert [path.read_bytes() for path in best[:2]] == [path.read_bytes() for path in best[2:]]
    assert not (plain / "policy" / "best").exists()
    assert rows_of(whole) == rows_of(broken) == rows_of(plain)

    # What was seen is what happened.
    episodes, (low, high) = one.seen["episodes"], one.seen["rewards"]
    ended = {seed: [e for e in episodes if e[0] == seed] for seed in (0, 1)}
    assert all(ended.values())
    opened = kept_in(whole)["episodes"]["open"]
    for seed, total in ((0, low), (1, high)):
        assert sum(e[2] for e in ended[seed]) + opened[0][seed] == pytest.approx(total)
        assert sum(e[3] for e in ended[seed]) + opened[1][seed] == tiny.STEPS
    rows = [row for row in rows_of(whole) if row["seed"] == "0"]
    assert [int(row["agent_steps"]) for row in rows] == [20, 40, 60, 80, 100, 120]
    assert sum(int(row["episodes"]) for row in rows) == len(ended[0])
    row = next(row for row in rows if row["episodes"] == "1")
    (alone,) = [e for e in ended[0] if int(row["agent_steps"]) - 20 < e[1] <= int(row["agent_steps"])]
    assert float(row["episode_return"]) == pytest.approx(alone[2], rel=1e-4)
    assert (float(row["episode_length"]), float(row["episode_success"])) == (alone[3], float(alone[5]))
    assert rows[0]["critic_loss"] == ""  # exploring
    assert float(rows[-1]["critic_loss"]) > 0
    assert 0 < float(rows[0]["obs_std"]) < float(rows[0]["obs_absmax"]) < 100
    assert {"train/episode_return", "episode_return/seed1", "train/episode_success", "train/obs_std"} <= tags_of(whole)


class Scored(toys.Toy):
    """Episodes of 10 steps whose return is `score`, whatever the policy does."""

    score: ClassVar[float] = 0.0

    def outcome(self, action):
        return type(self).score / 10, False, self.t == 9


class Scores(dr_q.Callback):
    """Gives evaluations these returns, one after the other; then it stops the run."""

    def __init__(self, scores: list[float]):
        self.left = list(scores)

    def next(self, event):
        if not self.left:
            return dr_q.Stop("no more scores")
        Scored.score = self.left.pop(0)
        return None

    on_start = on_evaluation = next


def train_scored(scores: list[float], **more: Any) -> dr_q.TrainResult:
    settings = {**SETTINGS, "in_process": True, "callbacks": [Scores(scores)], **more}
    return dr_q.train(Scored, steps=None if "resume" in more else 400, **settings)


def test_a_run_stops_at_a_return_and_continues_if_the_threshold_is_raised(tmp_path, capsys):
    run = tmp_path / "run"
    done = train_scored([0, 1, 5, 9], out=run, stop_at_return=5.0)
    why = "the mean return at step 80 is 5.0: stop_at_return 5 is reached"
    assert (done.status, done.agent_steps, done.stop_reason) == ("stopped", 80, why)
    again = train_scored([0], resume=run, quiet=False)
    assert (again.status, again.agent_steps) == ("stopped", 80)
    assert again.stop_reason == why
    assert f"{why}; resume with: dr_q.train(THE_SAME_CALLABLE" in (said := capsys.readouterr().out)
    assert "stop_at_return=HIGHER)" in said
    assert len((run / "evals.csv").read_text().splitlines()) == 4
    higher = train_scored([6, 8, 9], resume=run, stop_at_return=7.0)
    assert higher.agent_steps == 160
    assert higher.stop_reason == "the mean return at step 160 is 8.0: stop_at_return 7 is reached"
    assert read_run_json(run)["settings"]["stop_at_return"] == 7


def test_patience_counts_evaluations_without_improvement_also_across_a_resume(tmp_path):
    run = tmp_path / "run"
    # At 0 and 40 it explores. Best at 80; then two that are not higher.
    done = train_scored([9, 9, 5, 4, 5, 9], out=run, patience=2)
    assert (done.agent_steps, done.status) == (160, "stopped")
    assert done.stop_reason == (
        "the best mean return was 5.0 at step 80, with 2 evaluations without a higher one since: patience 2 is over"
    )
    assert train_scored([0], resume=run).agent_steps == 160
    longer = train_scored([5.5, 5, 5, 5, 5, 5], resume=run, patience=4)
    assert (longer.agent_steps, "was 5.5 at step 200" in longer.stop_reason) == (360, True)


def test_the_best_policy_over_time_is_kept_measured_again_and_goes_back_with_a_resume(tmp_path, capsys):
    run = tmp_path / "run"
    done = train_scored([1, 9, 3, 2.5], out=run, quiet=False)
    (best,) = done.best
    assert (best.agent_steps, best.return_mean, best.fresh_return) == (80, pytest.approx(3), pytest.approx(2.5))
    said = "best policy of seed 0: step 80, return 3.0 when it was chosen, 2.5 measured again on 2 fresh episodes"
    assert said in capsys.readouterr().out
    last, kept = dr_q.load(run), dr_q.load(run, which="best")
    assert (last.agent_steps, kept.agent_steps, last.which, kept.which) == (120, 80, "last", "best")
    assert repr(kept) == f"<dr_q.Policy of {kept.task}: best over time, step 80, seed 0>"
    assert (kept.returns[0], kept.fresh_returns[0]) == (pytest.approx(3), pytest.approx(2.5))
    assert dr_q.load(run / "policy" / "best").agent_steps == 80
    with pytest.raises(dr_q.ConfigError, match="which must be last or best, got 'first'"):
        policy_folder(run, "first")

    # A later best that the checkpoint does not know of is forgotten, and comes again.
    weights = load_file(run / "policy" / "best" / "seed0.safetensors")
    train_scored([9], resume=run)
    later = load_file(run / "policy" / "best" / "seed0.safetensors")
    assert dr_q.load(run, which="best").agent_steps == 160
    assert any(not np.array_equal(weights[name], later[name]) for name in weights)
    damaged = run / "checkpoints" / "160" / "best.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x7f")
    train_scored([1], resume=run, quiet=False)
    assert f"the checkpoint of step 160 is damaged ({damaged}: checksum differs)" in capsys.readouterr().out
    back = load_file(run / "policy" / "best" / "seed0.safetensors")
    assert dr_q.load(run, which="best").agent_steps == 80
    assert all(np.array_equal(weights[name], back[name]) for name in weights)
    shutil.rmtree(run / "policy" / "best")
    with pytest.raises(dr_q.RunFolderError, match="no best policy in"):
        dr_q.load(run, which="best")


def test_a_policy_that_has_not_learnt_is_best_only_until_the_first_that_has():
    def evaluated(step: int, score: float) -> Evaluated:
        policies: Any = {"w": np.full((1, 2), step)}
        return Evaluated(step, policies, [Evaluation(0, step, step, score, 0.0, 1.0, 1)])

    best, started = BestPolicies([0], 1, untrained_until=20), BestPolicies([0], 1)
    for step, score in ((0, 5.0), (20, 9.0), (40, 3.0), (60, 2.0)):
        for policies in (best, started):
            policies.take(evaluated(step, score))
        expected = {0: 0, 20: 20, 40: 40, 60: 40}[step]
        assert best.chosen[0].agent_steps == expected
        assert next(iter(best.weights.values())).tolist() == [[expected] * 2]
    assert started.chosen[0].agent_steps == 20


class Unkept(dr_q.Callback):
    def state(self):
        return {1, 2}


class Fails(dr_q.Callback):
    def __init__(self, hook: str, what: Any):
        self.hook, self.what, self.ended = hook, what, ""
        setattr(self, hook, self.fail)

    def fail(self, event):
        if event.agent_steps < 45:
            return None
        if isinstance(self.what, Exception):
            raise self.what
        return self.what

    def on_end(self, event):
        self.ended = event.status


def test_a_callback_that_fails_ends_the_run_which_says_how_to_resume(tmp_path, capsys):
    run = tmp_path / "run"
    fails = Fails("on_step", KeyError("my own"))
    with pytest.raises(KeyError, match="my own"):
        dr_q.train(toys.Walk, steps=80, out=run, callbacks=[fails], **{**SETTINGS, "quiet": False})
    said = capsys.readouterr().out
    assert (
        "the callback Fails failed in on_step at step 45; once that is fixed, resume from step 40 with: dr_q.train("
        in said
    )
    assert f"THE_SAME_CALLABLE, resume={str(run)!r}, callbacks=THE_SAME_CALLBACKS)" in said
    assert (read_run_json(run)["status"], fails.ended) == ("failed", "failed")
    with pytest.raises(
        dr_q.TrainingError, match=r"Fails.on_evaluation returned False; return dr_q.Stop\('the reason'\)"
    ):
        dr_q.train(toys.Walk, resume=run, callbacks=[Fails("on_evaluation", False)], quiet=True)
    with pytest.raises(dr_q.TrainingError, match=r"Unkept.state\(\) gave what JSON cannot hold"):
        dr_q.train(toys.Walk, resume=run, callbacks=Unkept(), quiet=True)
    assert dr_q.train(toys.Walk, resume=run, quiet=True).status == "finished"


class FailsAtTheEnd(dr_q.Callback):
    def __init__(self):
        self.ended: list[str] = []

    def on_end(self, event):
        self.ended.append(event.status)
        raise OSError("no printer")

    def restore(self, state):
        state["none"]


def test_a_callback_that_fails_at_the_end_leaves_the_run_finished(tmp_path, capsys):
    run = tmp_path / "run"
    fails, other = FailsAtTheEnd(), Watch()
    with pytest.raises(OSError, match="no printer"):
        dr_q.train(Tells, steps=40, out=run, callbacks=[fails, other], **{**SETTINGS, "quiet": False, "log_every": 20})
    assert read_run_json(run)["status"] == "finished"
    assert (fails.ended, other.calls[-1]) == (["finished"], ("finished", 40))
    assert "the callback FailsAtTheEnd failed in on_end; the run is finished at step 40\n" in capsys.readouterr().out
    with pytest.raises(dr_q.TrainingError, match=r"the callback FailsAtTheEnd failed in restore\(\): KeyError: 'none'"):
        Callbacks([fails]).restore({"FailsAtTheEnd": {}}, print)


def test_what_is_no_callback_is_refused_before_anything_starts(tmp_path):
    out = tmp_path / "run"
    for wrong in (3, [Watch(), 3]):
        with pytest.raises(dr_q.ConfigError, match=r"callbacks must be objects of subclasses of dr_q.Callback, got 3"):
            given_callbacks(wrong)
    greedy = Watch()
    greedy.info_keys = tuple(map(str, range(33)))  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dr_q.ConfigError, match="callbacks ask for 33 entries of info; at most 32"):
        dr_q.train(toys.Walk, out=out, callbacks=[greedy])
    with pytest.raises(dr_q.ConfigError, match="Stop needs a reason"):
        dr_q.Stop("")
    assert not out.exists()


class Drawn(Scored):
    """Can be drawn, but not a second time."""

    render_mode = "rgb_array"
    drawn: ClassVar[int] = 0

    def render(self) -> Any:
        type(self).drawn += 1
        if type(self).drawn > 11:
            raise RuntimeError("no more colours")
        return np.full((64, 64, 3), 20 * self.t, np.uint8)


def test_videos_are_recorded_every_so_many_evaluations_and_cannot_end_a_run(tmp_path, capsys):
    run = tmp_path / "run"
    Scored.score = 1.0
    settings = {**SETTINGS, "quiet": False, "in_process": True}
    done = dr_q.train(Drawn, steps=160, out=run, video_every=2, log_every=1_000, **settings)
    assert done.status == "finished"
    (video,) = (run / "videos").iterdir()
    assert (video.name, video.read_bytes()[4:8]) == ("step-000000080-seed0.mp4", b"ftyp")
    said = capsys.readouterr().out
    assert f"{video}: return 1.0, 0.4 s" in said
    assert "no video of step 160: Drawn failed in render(): RuntimeError: no more colours" in said
    assert "; training continues without videos\n" in said
    # The last row of a run is written though none was due.
    assert [row["agent_steps"] for row in rows_of(run)] == ["160"]
    assert said.count("| 4 training episodes: return 1.0, length 10\n") == 4  # since the line before


def frames_of(video: Path) -> np.ndarray:
    import imageio_ffmpeg

    words = ["-loglevel", "error", "-i", str(video), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), *words], capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 480, 480, 3)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("MUJOCO_GL") not in {"egl", "osmesa"}, reason="MUJOCO_GL names no off-screen GL")
def test_videos_of_a_real_simulator_show_it_moving(tmp_path, capsys, monkeypatch):
    """The first run draws; in the second nothing can be drawn, which is one line, and changes nothing else."""
    runs = tmp_path / "drawn", tmp_path / "not-drawn"
    words = ["train", "dmc/cartpole-balance", "--video-every", "1", *tiny.flags()]
    assert main([*words, "--out", str(runs[0])]) == 0
    videos = sorted((runs[0] / "videos").iterdir())
    assert [video.name for video in videos] == [f"step-000000{step:03}-seed0.mp4" for step in (40, 80, 120)]
    for video in videos:
        frames = frames_of(video).astype(np.int16)
        assert len(frames) == 501, "an episode has 500 agent steps of 0.02 s"
        assert frames.mean() > 20, "black"
        assert all(frame.std() > 5 for frame in frames[::100]), "of one colour"
        changed = [(np.abs(a - b) > 50).sum() for a, b in itertools.pairwise(frames[::50])]
        assert min(changed) > 100, "it stands still"
    monkeypatch.setenv("MUJOCO_GL", "disable")
    capsys.readouterr()
    assert main([*words, "--out", str(runs[1])]) == 0
    said, errors = capsys.readouterr()
    assert said.count("no video of step") == 1
    assert "no OpenGL backend works; dr-q doctor says what is missing; training continues without videos\n" in said
    assert errors == ""
    assert not (runs[1] / "videos").exists()
    assert (runs[0] / "evals.csv").read_bytes() == (runs[1] / "evals.csv").read_bytes()


def test_everything_on_the_command_line_on_a_real_environment(tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--patience", "1", "--stop-at-return", "0", "--video-every", "1", *tiny.flags(steps=1_000)]
    assert main(["train", "gym/Pendulum-v1", "--out", str(run), *options]) == 0
    said = capsys.readouterr().out
    info = read_run_json(run)
    assert info["status"] == "stopped"
    assert f"--patience 1 is over; resume with: dr-q train --resume {run} --patience MORE" in said
    with (run / "evals.csv").open() as file:
        evals = [(int(row["agent_steps"]), float(row["return_mean"])) for row in csv.DictReader(file)]
    learnt = [score for step, score in evals if step > 40]
    assert all(a < b for a, b in itertools.pairwise(learnt[:-1]))
    assert learnt[-1] <= learnt[-2]
    if "no videos" in said:  # drawing it needs pygame, which is looked for before anything compiles
        assert said.index("there will be no videos") < said.index("compiling")
        assert "pygame" in said
    else:
        assert len(list((run / "videos").iterdir())) == len(evals) - 1
    best = max(evals, key=lambda pair: pair[1])
    record = json.loads((run / "policy" / "best" / "policy.json").read_text())
    assert (record["agent_steps_of"], record["returns"]) == ({"0": best[0]}, {"0": best[1]})
    assert main(["eval", str(run), "--which", "best", "--episodes", "1"]) == 0
    again = f"{record['returns']['0']:.1f} when chosen, {record['fresh_returns']['0']:.1f} measured again"
    assert f"seed 0, best over time ({again}), {best[0]:,} agent steps: return " in capsys.readouterr().out
    out = tmp_path / "out"
    assert main(["export", str(run), "--which", "best", "--episodes", "0", "--out", str(out)]) == 0
    assert (dr_q.load(out).agent_steps, dr_q.load(out).which) == (best[0], "best")
    capsys.readouterr()
    assert main(["train", "--resume", str(run), "--stop-at-return", "-5000"]) == 0
    assert f"is reached; resume with: dr-q train --resume {run} --stop-at-return HIGHER" in capsys.readouterr().out
    assert main(["train", "--resume", str(run), "--patience", "0"]) == 2
    assert "--patience must be a whole number between 1 and" in capsys.readouterr().err


def test_the_minutes_of_a_run_begin_with_the_call(tmp_path):
    late = {"steps": tiny.STEPS, "max_minutes": 1.0, "started": time.monotonic() - 61}
    ended = dr_q.train(toys.Walk, out=tmp_path / "run", **late, **SETTINGS)
    assert (ended.status, ended.agent_steps) == ("stopped", 0)
    assert ended.stop_reason == "max_minutes 1 is over, before the first step"


def test_large_observations_are_warned_of_once_unless_they_are_normalised():
    obs = ObsSpec.vector(3)
    layout = PacketLayout(obs)

    def arrived(x: float) -> Transitions:
        seen = {SINGLE: np.array([[0.0, x, 1.0]])}
        return Transitions.of(layout, seen, seen, np.array([[1.0, 0, 0]]))

    log = EpisodeLog(1, 1, obs, preset("dr.q"))
    log.follow(arrived(-999), 10)
    assert log.too_large == ""
    log.follow(arrived(-4_321), 20)
    assert log.too_large.startswith("observations as large as 4,321 (component 1): networks learn badly")
    assert "normalise_observations all" in log.too_large
    row = log.take_row()
    assert [float(row[name][0]) for name in ("obs_mean", "obs_absmax")] == [pytest.approx((2 - 999 - 4_321) / 6), 4_321]
    log.too_large = ""
    log.follow(arrived(5_000), 30)
    assert log.too_large == ""
    normalised = EpisodeLog(1, 1, obs, preset("dr.q", normalise_observations="all"))
    normalised.follow(arrived(5_000), 10)
    assert normalised.too_large == ""
    with pytest.raises(DamagedFileError, match="what it has of training episodes cannot be read"):
        log.restore({**log.state(), "open": [[1.0, 2.0], [1]]}, "a checkpoint")


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "callbacks.md").read_text()
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "docs/callbacks.md", "exec"), {})


class Misnamed(dr_q.Callback):
    """Has a hook of Stable-Baselines3."""

    def _on_step(self) -> bool:
        return False


class Mistyped(dr_q.Callback):
    """Has a hook that there is not."""

    def on_evaluate(self, event):
        return dr_q.Stop("never")


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (
            Misnamed(),
            "Misnamed has a method _on_step, which is no hook and would never be called; did you mean 'on_step'",
        ),
        (Mistyped(), "Mistyped has a method on_evaluate, which is no hook .* did you mean 'on_evaluation'"),
    ],
)
def test_methods_that_only_look_like_hooks_are_refused(callback, said):
    with pytest.raises(dr_q.ConfigError, match=said):
        dr_q.train(toys.Walk, callbacks=callback)
    with pytest.raises(dr_q.ConfigError, match="unknown setting 'callback'; did you mean 'callbacks'"):
        dr_q.train(toys.Walk, callback=callback)


class Watches(dr_q.Callback):
    """Without a state."""

    def on_evaluation(self, event):
        return None


def test_a_resume_without_the_callbacks_of_the_run_says_so(tmp_path, capsys):
    run = tmp_path / "run"
    dr_q.train(toys.Walk, steps=80, out=run, callbacks=[Watches()], **SETTINGS)
    assert read_run_json(run)["callbacks"] == ["Watches"]
    dr_q.train(toys.Walk, resume=run, steps=120, callbacks=[Watches()])
    assert "until now this run had" not in capsys.readouterr().out
    dr_q.train(toys.Walk, resume=run, steps=160)
    said = "until now this run had the callback Watches; this resume has not: to keep it, resume from Python with"
    assert said in capsys.readouterr().out
    assert "callbacks" not in read_run_json(run)
