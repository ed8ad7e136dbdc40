"""Real sweeps on real Ray: finished, killed and started again, a worker killed, two nodes, Slurm's script."""

import csv
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dr_q.cli import main
from dr_q.sweep.job import attempt_under_way
from dr_q.sweep.spec import Job, SweepSpec, jobs_of_folder
from tests.sweep.processes import Address, children, listening, named
from tests.training import tiny

pytestmark = pytest.mark.slow

pytest.importorskip("ray", reason="sweeps need ray: pip install 'dr-q[ray]'")

ROOT = Path(__file__).parents[2]
WALK, SLOW, CALM, BREAKS = (f"tests.sweep.toys:sweep-{name}-v0" for name in ("walk", "slow", "calm", "breaks"))
TASKS = (SLOW, WALK, CALM)
PRESETS = ("dr.q", "no-infonce")
SCHEDULE = {"steps": tiny.STEPS, **{name: tiny.RUN[name] for name in ("eval_every", "eval_episodes")}}
SPEC = SweepSpec(TASKS, PRESETS, 2, checkpoint_every=40, changes=tiny.SIZES, **SCHEDULE)
DEADLINE = 600.0


def arguments(out: Path, tasks=TASKS, presets=PRESETS, checkpoint_every: int = 40) -> list[str]:
    sizes = {**tiny.SIZES, **SCHEDULE, "checkpoint_every": checkpoint_every}
    flags = [part for name, value in sizes.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return ["sweep", *tasks, "--presets", *presets, "--seeds", "2", "--out", str(out), "--cpus-per-job", "1", *flags]


def environment(**more: str) -> dict[str, str]:
    """Workers find the toys, and the package as this process found it."""
    import dr_q

    source = str(Path(dr_q.__file__).parents[1])
    quicker = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "RAY_worker_niceness": "0"}
    return {**os.environ, **quicker, "PYTHONPATH": os.pathsep.join((source, str(ROOT))), **more}


def start(command: list[str], log: Path, **more: str) -> subprocess.Popen:
    return spawn([sys.executable, "-m", "dr_q", *command], log, environment(**more))


def spawn(command: list[str], log: Path, variables: dict[str, str]) -> subprocess.Popen:
    with log.open("a") as file:
        return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=file, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen, log: Path, code: int = 0) -> str:
    assert process.wait(DEADLINE) == code, log.read_text()
    return log.read_text()


def wait_for(what, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not what():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def has_checkpoint(job: Job, steps: int = 40) -> bool:
    return (job.folder / "checkpoints" / str(steps)).exists()


def is_evaluated(job: Job, steps: int) -> bool:
    """Whether all seeds were evaluated at a step."""
    evaluations = job.folder / "evals.csv"
    return evaluations.exists() and f"\n1,{steps}," in evaluations.read_text()


@pytest.fixture(scope="module")
def unbroken_and_addresses(tmp_path_factory) -> tuple[Path, dict[str, set[Address]]]:
    """The sweep, from the command, never disturbed; where its processes listened while it ran."""
    out = tmp_path_factory.mktemp("sweep") / "unbroken"
    log = out.with_suffix(".log")
    process = start(arguments(out), log)
    wait_for(lambda: has_checkpoint(SPEC.jobs(out)[0]), process, log)
    found = listening([process.pid, *children(process.pid)])
    text = finish(process, log)
    assert text.splitlines()[-1] == str(out / "results.csv")
    return out, found


@pytest.fixture(scope="module")
def unbroken(unbroken_and_addresses) -> Path:
    return unbroken_and_addresses[0]


def test_nothing_outside_this_machine_can_reach_a_local_sweep(unbroken_and_addresses):
    addresses = unbroken_and_addresses[1]
    assert {"raylet", "gcs_server"} <= addresses.keys(), addresses
    assert all(address.is_loopback for mine in addresses.values() for address in mine), addresses


def test_a_sweep_finishes_with_one_tidy_file(unbroken):
    rows = list(csv.DictReader((unbroken / "results.csv").read_text().splitlines()))
    assert {(row["task"], row["preset"], row["seed"]) for row in rows} == {
        (task, preset, seed) for task in TASKS for preset in PRESETS for seed in ("0", "1")
    }
    assert [int(row["agent_steps"]) for row in rows[:4]] == [0, 40, 80, 120]
    assert len(rows) == 3 * 2 * 2 * 4
    for job in SPEC.jobs(unbroken):
        assert json.loads((job.folder / "run.json").read_text())["status"] == "finished"
        assert "step 120 of 120: return" in job.log.read_text()


def test_what_is_done_is_skipped(unbroken, capsys, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*.safetensors")}
    monkeypatch.setattr("dr_q.sweep.on_ray.cores", lambda: 1)
    assert main(arguments(unbroken)) == 0
    assert "6 jobs, 6 finished before" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in unbroken.rglob("*.safetensors")}


def test_a_killed_driver_and_a_lost_raylet_give_the_same_results(unbroken, tmp_path):
    """The raylet takes the jobs with it that it runs or would run; that is no retry of theirs: none is allowed here."""
    out, log = tmp_path / "broken", tmp_path / "log"
    jobs = SPEC.jobs(out)
    slow = jobs[0]
    command = [*arguments(out), "--retries", "0"]
    process = start(command, log)
    wait_for(lambda: has_checkpoint(slow), process, log)
    process.kill()
    process.wait()
    assert json.loads((slow.folder / "run.json").read_text())["status"] == "running"
    before = [attempt_under_way(job) for job in jobs]
    process = start(command, log)
    # While others still wait: jobs that run may reach their end before Ray's processes notice.
    wait_for(lambda: [attempt_under_way(job) for job in jobs] != before, process, log)
    (raylet,) = named(children(process.pid), "raylet")
    os.kill(raylet, signal.SIGKILL)
    text = finish(process, log)
    assert "Ray's process on this machine died; it is started again" in text
    assert "which is no retry" in text
    assert "resumed at step" in slow.log.read_text()
    assert (out / "results.csv").read_bytes() == (unbroken / "results.csv").read_bytes()


@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # to exec at once, by Ray
def test_two_nodes_a_killed_worker_and_a_killed_node_give_the_same_results(unbroken, tmp_path, monkeypatch):
    """The worker's job is started again from its checkpoint, on either node; all others end up on the first."""
    from ray.cluster_utils import Cluster

    out, log = tmp_path / "cluster", tmp_path / "log"
    slow = SPEC.jobs(out)[0]
    for name, value in environment(RAY_USAGE_STATS_ENABLED="0").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    cluster = Cluster()
    try:
        small = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        nodes = [cluster.add_node(**small) for _ in range(2)]
        process = start([*arguments(out), "--address", str(cluster.address)], log)
        wait_for(lambda: has_checkpoint(slow), process, log)
        first = attempt_under_way(slow)
        os.kill(json.loads(slow.lock.read_text())["pid"], signal.SIGKILL)
        wait_for(lambda: "again from step" in log.read_text(), process, log)
        nodes[1].kill_raylet()
        text = finish(process, log)
    finally:
        cluster.shutdown()
    assert f"{slow.name}: lost (WorkerCrashedError); again from step" in text
    assert f"{slow.name}: lost (WorkerCrashedError); again from step 0" not in text
    assert "a node died; again from step" in text
    assert attempt_under_way(slow) != first
    said = slow.log.read_text()
    assert said.count("step 0 of 120") == 1, "it began once only"
    assert "resumed at step" in said
    assert (out / "results.csv").read_bytes() == (unbroken / "results.csv").read_bytes()


SRUN = """#!/bin/bash
# Stands in for Slurm's: every node is this one.
echo "srun $*" >> "$STAND_IN_LOG"
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >> "$STAND_IN_LOG"
if [ "$1" = show ]; then printf 'node1\\nnode2\\n'; fi
"""


def test_the_slurm_script_stops_resumes_and_reports_a_failing_job(unbroken, tmp_path):
    """With stand-ins for srun and scontrol, and real Ray: two nodes on one machine.

    Checkpoints are due at the end only: the one that is there after the signal was asked for by it.
    """
    out, script, bin_folder = tmp_path / "slurm", tmp_path / "sweep.sh", tmp_path / "bin"
    command = arguments(out, (SLOW, BREAKS), PRESETS[:1], checkpoint_every=tiny.STEPS)
    assert main([*command, "--gpus-per-job", "0", "--slurm", str(script)]) == 0
    assert not out.exists(), "nothing is started"
    bin_folder.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(stat.S_IRWXU)
    calls, log = tmp_path / "calls", tmp_path / "log"
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_ON_NODE": "1"}
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    token = tmp_path / "home" / ".ray" / "auth_token"  # as a sweep on this machine leaves one
    token.parent.mkdir(parents=True)
    token.write_text("0" * 64)
    slurm["HOME"] = str(tmp_path / "home")
    slow, breaks = SweepSpec((SLOW, BREAKS), PRESETS[:1], 2, changes=tiny.SIZES, **SCHEDULE).jobs(out)

    def submit() -> subprocess.Popen:
        return spawn(["bash", str(script)], log, environment(PATH=path, STAND_IN_LOG=str(calls), **slurm))

    def learning() -> bool:
        evaluations = slow.folder / "evals.csv"
        return evaluations.exists() and "\n1,40," in evaluations.read_text()

    process = submit()
    wait_for(learning, process, log)
    process.send_signal(signal.SIGUSR1)
    text = finish(process, log)
    assert f"stopped by SIGTERM; the same command continues {out}" in text
    assert f"scontrol requeue {slurm['SLURM_JOB_ID']}" in calls.read_text()
    assert json.loads((slow.folder / "run.json").read_text())["status"] == "interrupted"
    steps = [int(path.name) for path in (slow.folder / "checkpoints").iterdir() if path.name.isdigit()]
    assert 40 <= steps[0] < tiny.STEPS
    log.unlink()
    lines = finish(submit(), log, 1).splitlines()
    assert f"resumed at step {steps[0]}" in slow.log.read_text()
    assert calls.read_text().count("start --address=") == 2, "a worker node joined each time"
    assert any(line.startswith(f"dr-q: {breaks.name}: ") and "a cable broke" in line for line in lines)
    assert "Traceback" not in "\n".join(lines)
    assert "Traceback" in breaks.log.read_text()
    mine = [line for line in (unbroken / "results.csv").read_text().splitlines() if f"{SLOW},dr.q" in line]
    assert (out / "results.csv").read_text().splitlines()[1:] == mine


SBATCH = """#!/bin/bash
# Stands in for Slurm's: the elements of an array one after the other, those that were requeued once more.
script=$1
last=$(sed -n 's/^#SBATCH --array=0-//p' "$script")
export SLURM_JOB_ID=77 SLURM_ARRAY_JOB_ID=77
seq 0 "$last" > "$STAND_IN_QUEUE"
status=0
while [ -s "$STAND_IN_QUEUE" ]; do
  element=$(head -n 1 "$STAND_IN_QUEUE")
  sed -i 1d "$STAND_IN_QUEUE"
  SLURM_ARRAY_TASK_ID=$element bash "$script" &
  echo $! > "$STAND_IN_ELEMENT"
  wait $! || status=1
done
exit $status
"""
REQUEUE = """#!/bin/bash
# scontrol requeue 77_0
echo "${2#*_}" >> "$STAND_IN_QUEUE"
"""


def test_the_array_stops_requeues_and_continues(unbroken, tmp_path):
    """With a stand-in for Slurm and without Ray; the checkpoint after the signal was asked for by it."""
    out, script, bin_folder, log = tmp_path / "array", tmp_path / "array.sh", tmp_path / "bin", tmp_path / "log"
    command = arguments(out, (SLOW, BREAKS), PRESETS[:1], checkpoint_every=tiny.STEPS)
    assert main([*command, "--gpus-per-job", "0", "--slurm", "array", "--slurm-script", str(script)]) == 0
    bin_folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scontrol", REQUEUE)):
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(stat.S_IRWXU)
    queue, element = tmp_path / "queue", tmp_path / "element"
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    variables = environment(PATH=path, STAND_IN_QUEUE=str(queue), STAND_IN_ELEMENT=str(element))
    jobs = {job.task: job for job in jobs_of_folder(out)}
    slow, breaks = jobs[SLOW], jobs[BREAKS]
    process = spawn(["sbatch", str(script)], log, variables)
    wait_for(lambda: is_evaluated(slow, 40), process, log)
    os.kill(int(element.read_text()), signal.SIGUSR1)
    text = finish(process, log, 1)
    assert f"{slow.name}: interrupted" in text
    assert f"{slow.name}: finished" in text
    assert "resumed at step" in slow.log.read_text()
    assert f"{breaks.name}: failed: EnvError: " in text
    assert "a cable broke" in text
    mine = [line for line in (unbroken / "results.csv").read_text().splitlines() if f"{SLOW},dr.q" in line]
    assert (out / "results.csv").read_text().splitlines()[1:] == mine
    again = finish(spawn(["sbatch", str(script)], log, variables), log, 1)
    assert f"{slow.name}: finished before" in again


def test_without_ray_a_killed_sweep_continues_with_the_same_results(unbroken, tmp_path):
    """Killed, its job writes a checkpoint and ends; a killed job is started again by the next sweep."""
    out, log = tmp_path / "local", tmp_path / "log"
    command = [*arguments(out, (SLOW, WALK), PRESETS[:1], checkpoint_every=tiny.STEPS), "--local"]
    slow, walk = SweepSpec((SLOW, WALK), PRESETS[:1], 2, changes=tiny.SIZES, **SCHEDULE).jobs(out)
    process = start(command, log)
    wait_for(lambda: is_evaluated(slow, 40), process, log)
    pid = json.loads(slow.lock.read_text())["pid"]
    status = json.loads((out / "status.json").read_text())
    assert status["state"] == "running"
    assert {job["state"] for job in status["jobs"]} <= {"running", "finished", "waiting"}
    process.kill()
    process.wait()
    deadline = time.monotonic() + DEADLINE
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert json.loads((slow.folder / "run.json").read_text())["status"] == "interrupted", "it wrote a checkpoint"
    process = start(command, log)
    wait_for(lambda: attempt_under_way(slow) and json.loads(slow.lock.read_text())["pid"] != pid, process, log)
    os.kill(json.loads(slow.lock.read_text())["pid"], signal.SIGKILL)
    text = finish(process, log)
    assert f"{slow.name}: lost (killed by SIGKILL); again from step" in text
    assert "again from step 0" not in text
    assert text.splitlines()[-1] == str(out / "results.csv")
    assert not (slow.folder / "run.json").read_text().count("failed")
    whole = (unbroken / "results.csv").read_text().splitlines()
    mine = [line for line in whole[1:] if line.startswith((f"{SLOW},dr.q", f"{WALK},dr.q"))]
    assert sorted((out / "results.csv").read_text().splitlines()[1:]) == sorted(mine)
    assert json.loads((out / "status.json").read_text())["state"] == "ended"
    assert walk.ended.exists()


def test_a_grid_is_killed_continued_and_extended_by_a_seed(tmp_path):
    """2 x 3 values, two seeds, on this machine's Ray; then a third seed of half of them in the same folder."""
    out, log = tmp_path / "grid", tmp_path / "log"

    def command(seeds: int, weights: str) -> list[str]:
        words = arguments(out, (WALK,), PRESETS[:1])
        words[words.index("--seeds") + 1] = str(seeds)
        return [*words, "--grid", f"infonce-weight={weights}", "--grid", "fade-decay=1e-3,1e-4,0"]

    process = start(command(2, "0.05,0.2"), log)
    wait_for(lambda: any(out.glob("*/*/checkpoints/80")), process, log)
    process.kill()
    process.wait()
    finish(start(command(2, "0.05,0.2"), log), log)
    before = (out / "results.csv").read_text().splitlines()
    assert len(before) == 1 + 6 * 2 * 4
    text = finish(start(command(3, "0.2"), log), log)
    assert "6 jobs, 3 finished before" in text
    after = (out / "results.csv").read_text().splitlines()
    assert set(before) < set(after)
    assert len(after) == 1 + (6 * 2 + 3) * 4
    rows = list(csv.DictReader(after))
    assert len({row["preset"] for row in rows}) == 6, "every combination has a name of its own"
    assert {row["seed"] for row in rows} == {"0", "1", "2"}
    configs = [json.loads(file.read_text())["settings"]["config"] for file in out.glob("*/*/run.json")]
    assert len({(config["infonce_weight"], config["fade_decay"]) for config in configs}) == 6
