"""The soak finds what it looks for: what a resume must do follows from the damage, and only real faults count."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import damages, disk, envs, soak
from tests.faults.soak import DONE, FAILED, INTERRUPTED, KILLED, TERMINATED, USAGE, Ended

HOME = Path(__file__).parents[2]
CHUNKS = {40: [["a"], ["b"]], 80: [["a", "c"], ["b", "d"]], 120: [["a", "c", "e"], ["b", "d"]]}
BEGAN = "metrics: here\n"
FAILS = Ended(FAILED, 1.0, BEGAN, "dr-q: RESUME\n", reached=True)
LOCKED = Ended(USAGE, 1.0, "", "dr-q: it is being trained by another process\n")
NAMED = "the checkpoint of step 120 is damaged (agents.safetensors: checksum differs); resuming from step 80 instead\n"


@pytest.fixture
def made(tmp_path) -> soak.Soak:
    """A run's folder with three checkpoints; nothing in it was trained."""
    made = soak.Soak(tmp_path, 0, list(soak.ON_THE_WAY), damages.KINDS)
    names = ("agents", "replay", "episodes", "best")
    files = [f"checkpoints/{step}/{name}.safetensors" for step in CHUNKS for name in names]
    files += [f"checkpoints/replay/seed{seed}/{name}.safetensors" for seed in (0, 1) for name in CHUNKS[120][seed]]
    files += ["metrics.csv", "tensorboard/events", "policy/seed0.safetensors", "policy/best/seed0.safetensors"]
    files += ["policy/policy.json", "policy/best/policy.json"]
    for number, name in enumerate(files):
        (made.run / name).parent.mkdir(parents=True, exist_ok=True)
        (made.run / name).write_bytes(bytes([number]) * 50)
    for step, chunks in CHUNKS.items():
        index = {"seeds": [0, 1], "chunks": chunks, "evaluations": "seed\n0\n"}
        (made.run / f"checkpoints/{step}/checkpoint.json").write_text(json.dumps(index))
    (made.run / "evals.csv").write_text("seed\n0\n1\n")
    record = {"settings": {"steps": soak.STEPS, "task": "x"}, "status": "running", "agent_steps": 120, "time": "09:00"}
    (made.run / "run.json").write_text(json.dumps(record))
    shutil.copytree(made.run, made.backup)
    return made


def after(made: soak.Soak, kind: str, file: str = "") -> soak.Expected:
    """What is expected after this damage, of that file if it is named."""
    if file:
        damages.DAMAGES[kind.partition(":")[0]](made.run / file, random.Random(0))
        return soak.expected(kind, Path(file), made.backup, made.run)
    path = damages.damage(kind, made.run, random.Random(0))
    assert path is not None
    return soak.expected(kind, path.relative_to(made.run), made.backup, made.run)


@pytest.mark.parametrize("kind", damages.KINDS)
def test_every_damage_can_be_done_and_changes_the_run(kind, made):
    wanted = after(made, kind)
    now, before = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (made.run, made.backup)
    )
    changed = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
    assert wanted.file in changed | {name.parent for name in changed}


@pytest.mark.parametrize(
    ("kind", "file", "step", "passed_over"),
    [
        ("flipped bit: agents", "checkpoints/120/agents.safetensors", 80, [120]),
        ("removed: best", "checkpoints/120/best.safetensors", 80, [120]),
        ("empty: a chunk", "checkpoints/replay/seed0/e.safetensors", 80, [120]),
        ("empty: a chunk", "checkpoints/replay/seed1/d.safetensors", 40, [80, 120]),
        ("truncated: a chunk", "checkpoints/replay/seed1/b.safetensors", None, []),
        ("removed: policy.json", "policy/policy.json", 120, []),
        ("flipped bit: TensorBoard's file", "tensorboard/events", 120, []),
    ],
)
def test_the_checkpoint_to_resume_from_follows_from_the_damage(kind, file, step, passed_over, made):
    wanted = after(made, kind, file)
    assert (wanted.step, wanted.passed_over, wanted.must_stop) == (step, passed_over, step is None)
    assert wanted.may_stop == wanted.must_stop
    assert wanted.names == (Path(file).name,)


def test_what_run_json_and_the_tables_must_lead_to(made):
    gone = after(made, "removed: run.json")
    assert (gone.must_stop, gone.codes) == (True, {USAGE})
    shutil.copyfile(made.backup / "run.json", made.run / "run.json")
    assert (after(made, "empty: run.json").must_stop, after(made, "empty: metrics.csv").may_stop) == (True, False)
    text = (made.backup / "run.json").read_text()
    (made.run / "run.json").write_text(text.replace('"x"', '"z"'))
    other = soak.expected("flipped bit: run.json", Path("run.json"), made.backup, made.run)
    assert (other.must_stop, other.may_stop) == (False, True)
    assert other.names == ("run.json", str(made.run), "z")
    (made.run / "run.json").write_text(f"{text}\n")
    assert not soak.expected("truncated: run.json", Path("run.json"), made.backup, made.run).may_stop, "it is the same"
    for rows, restored in (("seed\n0\n1", False), ("seed\n", True)):
        (made.run / "evals.csv").write_text(rows)
        assert soak.expected("x", Path("evals.csv"), made.backup, made.run).restored is restored


def test_a_flip_in_run_json_never_asks_for_another_number_of_steps(made):
    """Which a user may do, so that nobody could take it for damage."""
    for seed in range(100):
        damages.damage("flipped bit: run.json", made.run, random.Random(seed))
        text = (made.run / "run.json").read_bytes()
        shutil.copyfile(made.backup / "run.json", made.run / "run.json")
        try:
            assert json.loads(text)["settings"]["steps"] == soak.STEPS
        except (ValueError, LookupError, TypeError):
            continue


def try_with(made: soak.Soak, monkeypatch, ended: Ended, damage=None, fault: str | None = None) -> list[str]:
    """What is wrong with an attempt that ended so."""
    monkeypatch.setattr(soak, "attempt", lambda *_: ended)
    made.problems.clear()
    made.one(damage, fault)
    return made.problems


def test_resuming_from_another_checkpoint_or_in_silence_is_a_problem(made, monkeypatch):
    def resumed(step: int, said: str = "") -> Ended:
        return Ended(TERMINATED, 1.0, f"{said}resumed at step {step}\n{BEGAN}", signalled=True)

    late = "SIGTERM at a random time"
    assert try_with(made, monkeypatch, resumed(120), fault=late) == []
    assert "resumed from 80, there were [40, 80, 120]" in try_with(made, monkeypatch, resumed(80), fault=late)[0]
    wanted = after(made, "flipped bit: agents")
    assert try_with(made, monkeypatch, resumed(80, NAMED), wanted, late) == []
    for step in (40, 120):
        (said, *_) = try_with(made, monkeypatch, resumed(step, NAMED), wanted, late)
        assert f"resumed from {step} after damage of {wanted.file}, not 80" in said
    other = NAMED.replace("agents", "replay")
    assert "did not name" in try_with(made, monkeypatch, resumed(80, other), wanted, late)[0]
    assert made.happened == {late: 6, "flipped bit: agents": 4}
    made.unread = wanted  # an attempt that was killed may have renamed it
    assert try_with(made, monkeypatch, resumed(80), wanted, late) == []


def test_stopping_must_be_due_to_the_damage_and_name_it(made, monkeypatch):
    def stopped(line: str, code: int = FAILED) -> Ended:
        return Ended(code, 1.0, "", f"dr-q: {line}\n")

    shared = after(made, "empty: a chunk", "checkpoints/replay/seed1/b.safetensors")
    shutil.copytree(made.run, made.folder / "damaged")
    assert try_with(made, monkeypatch, stopped("b.safetensors cannot be read; no other is left"), shared) == []
    assert (made.run / shared.file).stat().st_size, "it is taken from the backup"
    for wrong in (stopped("it is damaged"), stopped("b.safetensors", USAGE), Ended(DONE, 1.0, "resumed at step 40\n")):
        shutil.rmtree(made.run)
        shutil.copytree(made.folder / "damaged", made.run)
        assert try_with(made, monkeypatch, wrong, shared), wrong
    policies = after(made, "empty: policy.json")
    assert "it could have used step 120" in try_with(made, monkeypatch, stopped("policy.json is empty"), policies)[0]


@pytest.mark.parametrize(
    ("fault", "ended", "right"),
    [
        ("SIGKILL at a change of the disk", Ended(KILLED, 1.0, disk_faults=1), True),
        ("SIGKILL at a change of the disk", Ended(KILLED, 1.0), False),
        ("full disk (ENOSPC)", Ended(FAILED, 1.0, BEGAN, "dr-q: RESUME\n", disk_faults=3), True),
        ("full disk (ENOSPC)", Ended(FAILED, 1.0, BEGAN, "dr-q: it failed\n", disk_faults=3), False),
        ("full disk (ENOSPC)", Ended(FAILED, 1.0, BEGAN, "dr-q: RESUME\n"), False),
        ("read-only disk (EROFS)", Ended(USAGE, 1.0, "", "dr-q: cannot use x\n", disk_faults=1), True),
        ("read-only disk (EROFS)", Ended(USAGE, 1.0, BEGAN, "dr-q: cannot use x\n", disk_faults=1), False),
        ("environment raises", FAILS, True),
        ("environment raises", FAILS._replace(err="dr-q: RESUME\nand more\n"), False),
        ("environment raises", Ended(9, 1.0, BEGAN, "", reached=True), False),
        ("environment hangs", FAILS._replace(hung_s=soak.ENV_TIMEOUT_S + 9), True),
        ("environment hangs", FAILS._replace(hung_s=soak.ENV_TIMEOUT_S + 11), False),
        ("SIGTERM in a step", Ended(TERMINATED, 1.0, f"{BEGAN}interrupted at step 120;\n", reached=True), True),
        ("SIGTERM in a step", Ended(TERMINATED, 1.0, f"{BEGAN}interrupted at step 90;\n", reached=True), False),
        ("SIGINT in a step", Ended(TERMINATED, 1.0, BEGAN, reached=True), False),
        ("SIGTERM twice", Ended(INTERRUPTED, 1.0, BEGAN, reached=True), True),
        ("SIGTERM at a random time", Ended(-15, 1.0, signalled=True), True),
        ("SIGTERM at a random time", Ended(-15, 1.0, BEGAN, signalled=True), False),
        ("simulator is killed", FAILS._replace(left=1), False),
        ("simulator hangs", Ended(soak.NO_END, 90.0, BEGAN, reached=True), False),
        ("another process trains in the folder", LOCKED, True),
        ("another process trains in the folder", Ended(DONE, 1.0, BEGAN), False),
    ],
)
def test_exit_codes_must_be_those_of_a_fault_that_took_place(fault, ended, right, made, monkeypatch):
    resumed = "resumed at step 120\n" if ended.began else ""
    err = ended.err.replace("RESUME", f"dr-q train --resume {made.run}")
    problems = try_with(made, monkeypatch, ended._replace(out=resumed + ended.out, err=err), fault=fault)
    assert (problems == []) == right, problems
    if right:
        assert made.happened == {fault: 1}


def test_a_fault_that_did_not_take_place_is_not_counted(made, monkeypatch):
    """Then the attempt must finish."""
    (made.run / "checkpoints" / "120").rename(made.run / "checkpoints" / str(soak.STEPS))
    record = {"status": "finished", "agent_steps": soak.STEPS}
    (made.run / "run.json").write_text(json.dumps(record))
    out = f"resumed at step {soak.STEPS}\n{BEGAN}"
    for fault in ("SIGHUP at a random time", "SIGKILL in half of a write", "environment gives NaN"):
        assert try_with(made, monkeypatch, Ended(DONE, 1.0, out, signalled=True), fault=fault) == []
    assert made.faults == 0
    assert made.tried.total() == 3
    (made.run / "run.json").write_text(json.dumps({**record, "status": "failed"}))
    assert "it has not finished" in try_with(made, monkeypatch, Ended(DONE, 1.0, out), fault="SIGTERM twice")[0]


def test_faults_are_placed_in_what_is_left_of_the_run(tmp_path):
    """Where an attempt has few steps to go, a fault in the thousandth would never take place."""
    whole = soak.Whole(seconds=10.0, start_s=4.0, changes=2_000, calls=1_000)
    for step, most in ((0, 1.0), (360, 0.1)):
        a = soak.Attempt(tmp_path / "run", random.Random(0), whole, step)
        drawn = [(a.change(), a.call(), a.moment()) for _ in range(200)]
        changes, calls, moments = zip(*drawn, strict=True)
        assert most * 700 < max(changes) * 0.5 <= most * 1_000
        assert most * 600 < max(calls) <= most * 1_000
        assert max(moments) <= 4 + 6 * most


def test_each_kind_is_to_take_place_as_often_as_the_others(made):
    made.happened.update({"a": 3, "b": 1})
    made.tried.update({"a": 3, "b": 2, "c": 1})
    assert made.rarest(["a", "b", "c"]) == ["c", "b", "a"]
    made.tried["c"] += 30  # it never does: the others must not wait for it
    assert made.rarest(["a", "b", "c"]) == ["b", "a", "c"]


def test_the_record_says_how_many_faults_took_place(made):
    assert len(set(damages.KINDS)) == len(damages.KINDS)
    assert len(damages.KINDS) + len(soak.ON_THE_WAY) >= 100
    made.tried.update({"flipped bit: agents": 3, "SIGTERM twice": 1})
    made.happened["flipped bit: agents"] += 2
    for _ in range(2):
        made.note("flipped bit: agents", "older checkpoint")
    made.note("SIGTERM twice", "did not take place")
    made.check_times("attempt 1", Ended(1, 50.0, left=2, hung_s=soak.ENV_TIMEOUT_S + soak.GRACE_S + 1))
    made.check_times("attempt 2", Ended(soak.NO_END, 90.0))
    record = made.record(3.0)
    assert (record["faults"], record["kinds"], record["tried"]) == (2, 1, 4)
    table = soak.table(record)
    assert "2 faults of 1 kinds took place, in 0 attempts at 0 runs, 3 s; problems: 3. 2 more were tried" in table
    assert "| flipped bit: agents | 3 | 2 | older checkpoint 2 |\n" in table
    assert "| SIGTERM twice | 1 | 0 |  |\n" in table
    assert (
        "- attempt 1: ended 19.0 s after an environment began to hang\n- attempt 1: 2 processes outlived it\n" in table
    )
    assert table.endswith("- attempt 2: no end after 90 s\n")


COUNTED = """
import ctypes, os, sys
from tests.faults.soak import COUNTS
shim = ctypes.CDLL(None)
if not os.fork():
    shim.drq_fault_count_in(COUNTS)
    shim.drq_fault_arm(ctypes.c_long(int(sys.argv[2])), ctypes.c_long(0), int(sys.argv[3]))
    for number in range(5):
        with open(f"{sys.argv[1]}/{number}", "w") as file:
            file.write("twelve bytes")
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), *COUNTS[:2])
"""


@pytest.mark.skipif(disk.shim() is None, reason="no C compiler, or not Linux")
@pytest.mark.parametrize(("kill_at", "torn", "said"), [(4, 0, "-9 4 1"), (3, 1, "-9 4 1"), (99, 0, "0 10 0")])
def test_the_counts_of_the_disk_outlive_a_kill(kill_at, torn, said, tmp_path):
    command = [sys.executable, "-c", COUNTED, str(tmp_path), str(kill_at), str(torn)]
    done = subprocess.run(
        command, env=disk.with_faults(tmp_path), cwd=HOME, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == said, done.stderr
    sizes = [(tmp_path / str(number)).stat().st_size for number in range(5) if (tmp_path / str(number)).exists()]
    assert sizes == {"-9 4 1": [12, 6] if torn else [12, 0], "0 10 0": [12] * 5}[said]


def test_an_environment_writes_down_that_it_reached_its_fault(tmp_path):
    met = tmp_path / "happened"
    fault = envs.once(lambda: "nan", met)
    assert not met.exists()
    assert (fault(), fault()) == ("nan", None)
    assert float(met.read_text()) > 0
