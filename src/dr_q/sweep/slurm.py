"""A batch script for Slurm: Ray on the allocation's nodes, the sweep on it, and again after a requeue."""

import dataclasses
import shlex
import sys
from pathlib import Path

from dr_q.kit import ConfigError
from dr_q.sweep.spec import RUN_OPTIONS, SweepOptions, SweepSpec, check_folder, check_tasks

_SCRIPT = """\
#!/bin/bash
# A dr-q sweep. Submit it with sbatch, whose own options win over these lines: sbatch --nodes=4 --time=12:00:00 FILE
# Every node must see the sweep's folder and this Python. What is finished is skipped, so it may be submitted again.
#SBATCH --job-name=dr-q-sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
{gpus}#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the time is up, or before a preemption that warns: checkpoints, then back into the queue.
#SBATCH --signal=B:USR1@120
set -euo pipefail

export RAY_USAGE_STATS_ENABLED=0
python={python}
ray={ray}
sweep=({command})

port=$((20000 + SLURM_JOB_ID % 10000))
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${{hosts[0]}}
cpus=${{SLURM_CPUS_ON_NODE:-$(nproc)}}
on_head=(srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --nodelist="$head")
# The first address that other nodes can reach.
ip=$("${{on_head[@]}}" bash -c 'hostname --ip-address; hostname --all-ip-addresses' |
  awk '{{for (i = 1; i <= NF; i++) if ($i !~ /^127[.]|:/ && !found++) print $i}}')
ip=${{ip:-127.0.0.1}}

started=()
driver=
# shellcheck disable=SC2317,SC2329  # called by traps
end_ray() {{
  if [ "${{#started[@]}}" -gt 0 ]; then
    kill "${{started[@]}}" 2>/dev/null || true
    wait "${{started[@]}}" 2>/dev/null || true
  fi
}}
# shellcheck disable=SC2317,SC2329
stop() {{
  trap '' USR1 TERM
  if [ -n "$driver" ]; then
    kill -TERM "$driver" 2>/dev/null || true
    wait "$driver" || true
  fi
}}
# shellcheck disable=SC2317,SC2329
requeue() {{
  stop
  scontrol requeue "$SLURM_JOB_ID"
  exit 0
}}
trap end_ray EXIT
trap requeue USR1
trap 'stop; exit 143' TERM

"${{on_head[@]}}" "$ray" start --head --node-ip-address="$ip" --port="$port" --num-cpus="$cpus" \\
  --include-dashboard=false --block &
started+=($!)
for _ in $(seq 120); do
  "$ray" health-check --address="$ip:$port" >/dev/null 2>&1 && break
  kill -0 "${{started[0]}}" 2>/dev/null || {{ echo "Ray did not start on $head" >&2; exit 1; }}
  sleep 1
done
others=$((${{#hosts[@]}} - 1))
if [ "$others" -gt 0 ]; then
  srun --nodes="$others" --ntasks="$others" --cpus-per-task="$cpus" --exclude="$head" \\
    "$ray" start --address="$ip:$port" --num-cpus="$cpus" --block &
  started+=($!)
fi

"$python" -m dr_q "${{sweep[@]}}" --address "$ip:$port" &
driver=$!
status=0
wait "$driver" || status=$?
exit "$status"
"""


def slurm_script(spec: SweepSpec, out: Path, options: SweepOptions) -> str:
    """The script; it is that of this Python."""
    gpus = options.gpus_per_job
    python = Path(sys.executable)
    return _SCRIPT.format(
        gpus="" if gpus == 0 else f"#SBATCH --gpus-per-node={max(1, int(gpus or 1))}\n",
        python=shlex.quote(str(python)),
        ray=shlex.quote(str(python.with_name("ray"))),
        command=shlex.join(sweep_arguments(spec, Path(out).resolve(), options)),
    )


def write_slurm(spec: SweepSpec, out: Path, options: SweepOptions, file: Path) -> None:
    """Write it to a new file."""
    if options.address is not None:
        raise ConfigError("--slurm starts a Ray cluster of its own; leave --address out")
    if file.exists():
        raise ConfigError(f"{file} is there already; remove it, or choose another name for --slurm")
    check_folder(spec, Path(out).resolve())
    check_tasks(spec)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(slurm_script(spec, out, options))
    file.chmod(0o755)


def sweep_arguments(spec: SweepSpec, out: Path, options: SweepOptions) -> list[str]:
    """The command line of a sweep, without `dr-q`."""
    given = {
        "presets": spec.presets,
        "seeds": spec.seeds,
        "out": out,
        **{name: getattr(spec, name) for name in RUN_OPTIONS},
        "noise_dims": spec.noise_dims,
        **dataclasses.asdict(options),
        **spec.changes,
    }
    arguments = ["sweep", *spec.tasks]
    for name, value in given.items():
        if value is not None:
            values = value if isinstance(value, tuple | list) else (value,)
            arguments += [f"--{name.replace('_', '-')}", *map(str, values)]
    return arguments
