"""The scripts in benchmarks/: what they print must be what they saw."""

import csv
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dr_q.run_folder.tables import EVAL_COLUMNS
from dr_q.training.step import PARTS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def as_a_script_finds_its_neighbours(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x256x32_kernel__5x_cublas", "product"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_32x6_tn_align4>", "product"),
        ("sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_kernel__5x_cudnn", "convolution"),
        ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolution", "convolution"),
        ("void nhwcAddPaddingKernel<float, float, float, true, (cudnnKernelDataType_t)2>", "convolution"),
        ("wrapped_convert_9", "convert"),
        ("input_transpose_fusion", "copy"),
        ("norm_forward__3", "norm_forward"),
        ("loop_add_fusion_3", "loop_add"),
    ],
)
def test_kernels_are_called_what_they_are(kernel, kind):
    """Names as the profiler gave them on an H200."""
    assert script("kernels").kind(kernel) == kind


def test_the_recorded_kernels_have_todays_kinds():
    kernels = script("kernels")
    files = sorted((BENCHMARKS / "results" / "h200" / "kernels").glob("*.csv"))
    assert len(files) == 4
    for file in files:
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert rows
        assert [row["kind"] for row in rows] == [kernels.kind(row["kernel"]) for row in rows]


@pytest.mark.parametrize(
    ("ratios", "shown"),
    [
        ([2.0], "2.000"),
        ([1.0, 3.0], "2.000"),
        ([1.0, 2.0, 3.0], "2.000 [-0.484, 4.484]"),
        ([1.0, 3.0] * 6, "2.000 [1.336, 2.664]"),  # t of 11 degrees: 2.201, not 1.96
    ],
)
def test_a_ratio_has_students_interval(ratios, shown):
    assert script("two_versions").ratio([(1.0, ratio) for ratio in ratios]) == shown


def test_python_runs_with_the_version_asked_for(tmp_path, monkeypatch):
    (tmp_path / "dr_q").mkdir()
    (tmp_path / "dr_q" / "__init__.py").touch()
    (tmp_path / "dr_q" / "__main__.py").write_text("import os; print(os.environ['PYTHONPATH'], os.environ['COLUMNS'])")
    monkeypatch.setenv("PYTHONPATH", "mine")
    printed = script("versions").run_python(tmp_path, "-m", "dr_q", COLUMNS="200")
    assert printed == f"{tmp_path}{os.pathsep}mine 200\n"


def test_the_authors_agent_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    authors = script("authors")
    assert authors.find_agent(tmp_path).startswith(f"no authors' agent at {tmp_path}: expected DRQ/DRQ.py there")
    (tmp_path / "DRQ").mkdir()
    (tmp_path / "DRQ" / "DRQ.py").touch()
    assert authors.find_agent(tmp_path) == ""
    assert sys.path[0] == str(tmp_path / "DRQ")


@pytest.mark.slow
def test_kernels_sees_what_an_update_runs(tmp_path, monkeypatch, capsys):
    kernels = script("kernels")
    few = ("--seeds", "1", "--preset", "quick", "--updates", "2", "--capacity", "600")
    words = ["kernels.py", "--out", str(tmp_path), *few]
    monkeypatch.setattr(sys, "argv", words)
    assert kernels.main() == 0
    assert "product" in capsys.readouterr().out
    for name in ("encoder", "rl_update"):
        with (tmp_path / f"{name}.csv").open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert sum(float(row["us_per_update"]) for row in rows if row["kind"] == "product") > 0
    monkeypatch.setattr(sys, "argv", [*words[:3], "--seeds", "0"])
    assert kernels.main() == 2
    assert capsys.readouterr().err == "kernels.py: --seeds must be at least 1, got 0\n"


def test_times_of_a_step_are_those_of_todays_columns():
    """A run of this version, and one whose columns had other names."""
    versions, breadth = script("versions"), BENCHMARKS.parent / "results" / "breadth"

    def rows(run: str) -> list[dict[str, str]]:
        with (breadth / run / "metrics.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    last = rows("hbench-h1-run-v0")[-1]
    parts = [f"ms_{part}" for part in (*PARTS, "other")]
    assert versions.milliseconds_per_step([last]) == pytest.approx(sum(float(last[name]) for name in parts))
    with pytest.raises(ValueError, match="other columns of times"):
        versions.milliseconds_per_step(rows("dmc-acrobot-swingup"))


def test_return_against_wall_time_comes_from_the_records_of_runs(tmp_path, monkeypatch):
    """Two runs of 1 and 2 environments, with 2 and 1 ms of a step, evaluated every 100 steps."""
    lanes = script("lanes")
    for envs, ms in ((1, 2.0), (2, 1.0)):
        run = tmp_path / "runs" / f"gym-Hopper-v4-envs{envs}"
        run.mkdir(parents=True)
        (run / "run.json").write_text('{"status": "finished"}')
        at = [0, 100, 200]
        evals = [f"{seed},{step},{step},{step + seed},0,9,1" for step in at for seed in (0, 1, 2)]
        (run / "evals.csv").write_text("\n".join([",".join(EVAL_COLUMNS), *evals]) + "\n")
        logged = [f"{seed},{step},{ms - 0.5},0.5" for step in (50, 200) for seed in (0, 1, 2)]
        (run / "metrics.csv").write_text("\n".join(["seed,agent_steps,ms_other,ms_evaluation", *logged]) + "\n")
    monkeypatch.setattr(
        sys, "argv", ["lanes.py", "table", "--out", str(tmp_path), "--tasks", "gym/Hopper-v4", "--envs", "1", "2"]
    )
    assert lanes.main() == 0
    with (tmp_path / "curves.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == "2"]
    assert [(row["envs"], float(row["seconds"]), float(row["return_mean"])) for row in rows] == [
        ("1", 0.0, 2.0), ("1", 0.2, 102.0), ("1", 0.4, 202.0), ("2", 0.0, 2.0), ("2", 0.1, 102.0), ("2", 0.2, 202.0),
    ]  # fmt: skip
    assert (tmp_path / "curves.png").stat().st_size > 5_000
