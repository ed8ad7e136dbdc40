"""A sweep on this machine's Ray whose jobs only wait: where its processes listen, and what a lost raylet costs.

`test_sweep.py` has sweeps that train, which take minutes.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_q.envs import cores
from dr_q.sweep.job import attempt_under_way
from dr_q.sweep.spec import SweepSpec
from tests.sweep.processes import children, in_session, listening, named
from tests.sweep.test_sweep import ROOT, SLOW, WALK, environment, finish, wait_for
from tests.sweep.waiting_sweep import WAIT_FOR

pytest.importorskip("ray", reason="sweeps need ray: pip install 'dr-q[ray]'")


@contextlib.contextmanager
def started(command: list[str], log: Path, **more: str) -> Iterator[subprocess.Popen]:
    """A process and all that it starts, which end with the block."""
    with log.open("a") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(**more), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        for pid in {process.pid, *children(process.pid), *in_session(process.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="not Linux")
def test_a_local_sweep_listens_on_this_machine_only_and_outlives_its_raylet(tmp_path):
    """No retry is allowed: a raylet that is lost is none. One job runs when it is killed, the other one waits."""
    out, log, may_end = tmp_path / "sweep", tmp_path / "log", tmp_path / "may-end"
    jobs = SweepSpec((SLOW, WALK), ("dr.q",), 1).jobs(out)
    words = ["sweep", SLOW, WALK, "--seeds", "1", "--out", str(out), "--retries", "0", "--cpus-per-job", str(cores())]
    command = [sys.executable, "-m", "tests.sweep.waiting_sweep", *words]
    with started(command, log, **{WAIT_FOR: str(may_end)}) as process:
        for attempt in ("first", "after the raylet was lost"):
            before = {attempt_under_way(job) for job in jobs}
            wait_for(lambda was=before: {attempt_under_way(job) for job in jobs} != was, process, log)
            found = listening([process.pid, *children(process.pid)])
            assert {"raylet", "gcs_server"} <= found.keys(), (attempt, found)
            assert any(name.startswith("ray::") for name in found), (attempt, found)
            assert all(address.is_loopback for mine in found.values() for address in mine), (attempt, found)
            if attempt == "first":
                (raylet,) = named(children(process.pid), "raylet")
                os.kill(raylet, signal.SIGKILL)
        may_end.touch()
        text = finish(process, log)
    assert "Ray's process on this machine died; it is started again" in text
    assert text.count("again from step 0, which is no retry") == 2
    assert all(f"{job.name}: finished" in text for job in jobs)
    assert text.splitlines()[-1] == str(out / "results.csv")
