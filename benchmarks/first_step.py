"""Seconds from `dr-q train` to its first environment step, with a cold and a warm compile cache.

    python benchmarks/first_step.py                                  # dmc/walker-walk, gym/Pendulum-v1
    python benchmarks/first_step.py --tasks gym/Ant-v4 --repeats 5 --out FILE

Each run is a process of its own, `dr-q train TASK` with the paper's networks, one seed. Measured is the time from the
start of the process to the first action that reaches the environment, that of the evaluation at step 0. By then
everything that the run needs is compiled.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WATCH = """
import sys, time
start = float(sys.argv[1])
sys.argv = sys.argv[1:]
from dr_q.envs.processes.pool import InProcessPool
def first(self, actions):
    print(f"FIRST STEP {time.time() - start:.3f}", flush=True)
    import os
    os._exit(0)
InProcessPool.evaluate_step = InProcessPool.send = first
from dr_q.cli import main
main(sys.argv[1:])
"""


def seconds(task: str, cache: Path) -> float:
    """Of one process."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "XLA_FLAGS"):
        variables.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", task, "--eval-episodes", "1", "--out", f"{folder}/run"]
        command = [sys.executable, "-c", WATCH, str(time.time()), *words]
        done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("FIRST STEP")]
    if not found:
        sys.exit(done.stdout[-2_000:] + done.stderr[-2_000:])
    return float(found[0].split()[-1])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["dmc/walker-walk", "gym/Pendulum-v1"])
    parser.add_argument("--repeats", type=int, default=3, help="runs with a warm cache")
    parser.add_argument("--out", type=Path, help="a file for the numbers")
    options = parser.parse_args()
    found = {}
    for task in options.tasks:
        with tempfile.TemporaryDirectory() as cache:
            cold = seconds(task, Path(cache))
            warm = [seconds(task, Path(cache)) for _ in range(options.repeats)]
        found[task] = {"cold": cold, "warm": warm, "warm, median": statistics.median(warm)}
        print(f"{task}: cold {cold:.1f} s, warm {statistics.median(warm):.1f} s {warm}", flush=True)
    record = {"machine": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg(), "seconds": found}
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
