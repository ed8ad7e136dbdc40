"""A sweep on this machine's Ray whose jobs only wait: where its processes listen, and what a lost raylet costs.

`test_sweep.py` has sweeps that train, which take minutes.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dr_q.envs import cores
from dr_q.sweep.job import attempt_under_way
from dr_q.sweep.spec import SweepSpec
from tests.sweep import test_sweep
from tests.sweep.processes import children, listening, named
from tests.sweep.test_sweep import ROOT, SLOW, WALK, environment, finish, wait_for
from tests.sweep.waiting_sweep import WAIT_FOR

pytest.importorskip("ray", reason="sweeps need ray: pip install 'dr-q[ray]'")


class Sweep:
    """A process and all that it starts, which end with the block."""

    def __init__(self, command: list[str], log: Path, **more: str):
        with log.open("a") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment(**more), stdout=file, stderr=subprocess.STDOUT
            )
        self._seen: dict[int, str] = {}

    def all(self) -> list[int]:
        """Its processes now; remembered, because workers outlive a raylet that is killed."""
        now = [self.process.pid, *children(self.process.pid)]
        self._seen |= {pid: begun for pid in now if (begun := begin_of(pid))}
        return now

    def __enter__(self) -> "Sweep":
        return self

    def __exit__(self, *_: object) -> None:
        self.all()
        for pid, begun in self._seen.items():
            if begin_of(pid) == begun:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()


def begin_of(pid: int) -> str:
    """When a process began, which tells it from a later one of its number; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="not Linux")
def test_a_local_sweep_listens_on_this_machine_only_and_outlives_its_raylet(tmp_path, monkeypatch):
    """No retry is allowed: a raylet that is lost is none. One job runs when it is killed, the other one waits."""
    out, log, may_end = tmp_path / "sweep", tmp_path / "log", tmp_path / "may-end"
    jobs = SweepSpec((SLOW, WALK), ("dr.q",), 1).jobs(out)
    words = ["sweep", SLOW, WALK, "--seeds", "1", "--out", str(out), "--retries", "0", "--cpus-per-job", str(cores())]
    command = [sys.executable, "-m", "tests.sweep.waiting_sweep", *words]
    monkeypatch.setattr(test_sweep, "DEADLINE", 200.0)
    with Sweep(command, log, **{WAIT_FOR: str(may_end)}) as sweep:
        for attempt in ("first", "after the raylet was lost"):
            before = {attempt_under_way(job) for job in jobs}
            wait_for(lambda was=before: {attempt_under_way(job) for job in jobs} != was, sweep.process, log)
            found = listening(sweep.all())
            assert {"raylet", "gcs_server"} <= found.keys(), (attempt, found)
            assert any(name.startswith("ray::") for name in found), (attempt, found)
            assert all(address.is_loopback for mine in found.values() for address in mine), (attempt, found)
            if attempt == "first":
                (raylet,) = named(sweep.all(), "raylet")
                os.kill(raylet, signal.SIGKILL)
        may_end.touch()
        text = finish(sweep.process, log)
    assert "Ray's process on this machine died; it is started again" in text
    assert text.count("again from step 0, which is no retry") == 2
    assert all(f"{job.name}: finished" in text for job in jobs)
    assert text.splitlines()[-1] == str(out / "results.csv")


JOINS = """
import sys
import ray
from dr_q.sweep.on_ray import cluster, need_ray
from dr_q.sweep.spec import SweepOptions
need_ray()
with cluster(SweepOptions(address=sys.argv[1])) as ours:
    print(ours, ray.get(ray.remote(lambda: 3).remote()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("asks", [True, False])
def test_a_cluster_that_asks_for_a_token_gets_the_one_of_this_machine(asks, tmp_path):
    """As `ray start --head` does once there is a token, which every Ray on this machine leaves behind."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("7" * 64)
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port", str(port)]
    ray += ["--include-dashboard=false", "--disable-usage-stats", "--num-cpus=1", "--object-store-memory=80000000"]
    own = {} if asks else {"RAY_AUTH_MODE": "disabled"}
    with (
        tempfile.TemporaryDirectory(prefix="r") as short,  # paths of sockets must be
        Sweep([*ray, "--temp-dir", short], tmp_path / "ray.log", HOME=str(tmp_path), **own) as head,
    ):
        log = tmp_path / "ray.log"
        wait_for(lambda: "Ray runtime started" in log.read_text(), head.process, log)
        head.all()
        done = subprocess.run(
            [sys.executable, "-c", JOINS, f"127.0.0.1:{port}"], cwd=ROOT, env=environment(HOME=str(tmp_path)),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        head.all()
    assert done.stdout == "False 3\n", done.stderr
