"""The benchmark measures what it says; how fast anything is, no test asks."""

from typing import NoReturn

import pytest

from dr_q.cli import main
from dr_q.diagnostics import bench as benchmark
from dr_q.settings import make_settings
from dr_q.spaces import SINGLE
from tests.envs import toys
from tests.training import tiny


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_bench_gives_a_table_with_every_part(seeds, monkeypatch):
    monkeypatch.setattr(benchmark, "EXPLORE", 60)
    monkeypatch.setattr(benchmark, "EVAL_EVERY", 20)
    settings = make_settings(toys.Walk, changes=tiny.SIZES, seeds=seeds, steps=400, eval_episodes=1)
    lines = []
    figures = benchmark.bench(settings, 15, with_evaluation=True, say=lines.append)
    assert figures.steps == 20, "whole target periods"
    assert figures.seed_steps_per_s == pytest.approx(1000 * seeds / figures.step)
    assert set(figures.parts) == {"dispatch_actions", "wait_for_actions", "wait_for_simulators", "wait_for_dispatch"}
    assert all(value > 0 for value in figures.parts.values())
    assert (figures.slowest_simulator is None) == (seeds == 1)
    assert figures.stored_bytes > 0
    assert figures.evaluated_step is not None
    text = figures.markdown()
    assert f"{seeds} seeds, replay of 16,384 slots" in text
    for part in ("seed-steps/s, after exploration", "encoder update", "critic + actor update", "compile", "cores"):
        assert part in text
    assert any(line.startswith("compiled in") for line in lines)


def test_bench_with_several_environments_counts_their_transitions(monkeypatch):
    """A round of 3 environments is 3 agent steps and 3 updates."""
    monkeypatch.setattr(benchmark, "EXPLORE", 60)
    rounds: list[list[int | None]] = []
    timed = benchmark._run

    def run(stepper, updates, own=None):
        rounds.append(list(updates))
        return timed(stepper, rounds[-1], own)

    monkeypatch.setattr(benchmark, "_run", run)
    settings = make_settings(toys.Walk, changes=tiny.SIZES, num_envs=3, steps=400)
    figures = benchmark.bench(settings, 15, in_process=True)
    assert (figures.steps, figures.envs) == (21, 3), "two target periods of 10 updates, in whole rounds"
    assert rounds[1:] == [[None] * 20, [0, 3, 6, 9], [0, 3, 6, 9, 12, 15, 18]]
    assert figures.seed_steps_per_s == pytest.approx(3 * 1000 / figures.step)
    assert sum(figures.parts.values()) == pytest.approx(figures.step, rel=0.2)
    assert "1 seeds of 3 environments, replay of" in figures.markdown()
    assert "round of all seeds" in figures.markdown()


def test_bench_takes_the_number_of_environments(monkeypatch):
    def stop(settings, *_, **__) -> NoReturn:
        raise OpenedError(settings.num_envs)

    monkeypatch.setattr(benchmark, "bench", stop)
    with pytest.raises(OpenedError) as opened:
        main(["bench", "gym/Pendulum-v1", "--envs", "4"])
    assert opened.value.args == (4,)


class OpenedError(Exception):
    pass


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (".", "Is a directory"),
        ("there/x.json", "Not a directory"),
        ("new/" + "x" * 300, "File name too long"),
        ("kept", "Permission denied"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_timed(place, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark, "bench", lambda *_, **__: pytest.fail("it is timed"))
    monkeypatch.setattr("dr_q.kit.files.os.access", lambda path, _: not str(path).endswith("kept"))
    for name in ("there", "kept"):
        (tmp_path / name).touch()
    assert main(["bench", "gym/Pendulum-v1", "--json", place]) == 2
    out, error = capsys.readouterr()
    assert error.startswith("dr-q: cannot use ")
    assert error.endswith(f": {said}\n")
    assert (out, error.count("\n")) == ("", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "there"]


def test_bench_has_the_noise_of_its_settings(monkeypatch):
    def stop(settings, steps, learner, pool, *_) -> NoReturn:
        raise OpenedError(pool.spec.obs[SINGLE].shape, learner.spec.spaces.obs[SINGLE].shape)

    monkeypatch.setattr(benchmark, "_measure", stop)
    settings = make_settings(toys.Walk, changes=tiny.SIZES, steps=400, eval_episodes=1, noise_dims=3)
    with pytest.raises(OpenedError) as opened:
        benchmark.bench(settings, 10)
    assert opened.value.args == ((4,), (4,))
