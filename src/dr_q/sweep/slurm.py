"""Batch scripts for Slurm: whole nodes with Ray on them, or an array with a job of the sweep in each element."""

import dataclasses
import math
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dr_q.config import settings_of
from dr_q.kit import ConfigError, check_can_write, full_path, read_small, shortened, write_text
from dr_q.settings import STOP_RULES, Execution, option_name
from dr_q.sweep.driver import CPUS_BESIDE_SIMULATORS
from dr_q.sweep.estimate import longest_first
from dr_q.sweep.job import Share, job_file, write_job
from dr_q.sweep.progress import progress_of
from dr_q.sweep.spec import RUN_OPTIONS, Job, SweepOptions, SweepSpec, check_folder, check_tasks, write_spec

_NODES_SCRIPT = """\
#!/bin/bash
# A dr-q sweep. Submit it with sbatch, whose own options win over these lines: sbatch --nodes=4 --time=12:00:00 FILE
# Every node must see the sweep's folder and this Python. What is finished is skipped, so it may be submitted again.
#SBATCH --job-name=dr-q-sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
{gpus}#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the time is up, or before a preemption that warns: checkpoints, then back into the queue.
#SBATCH --signal=B:USR1@120
{header}set -euo pipefail

export RAY_USAGE_STATS_ENABLED=0
{service}python={python}
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

# The nodes of this job know each other by a token of its own. Without one, a token that an earlier Ray left in the home
# directory would be asked for by some of Ray's processes and not be known to others.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token

"${{on_head[@]}}" "${{on_node[@]}}" "$ray" start --head --node-ip-address="$ip" --port="$port" --num-cpus="$cpus" \\
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
    "${{on_node[@]}}" "$ray" start --address="$ip:$port" --num-cpus="$cpus" --block &
  started+=($!)
fi

"$python" -m dr_q "${{sweep[@]}}" --address "$ip:$port" &
driver=$!
status=0
wait "$driver" || status=$?
exit "$status"
"""


_ARRAY_SCRIPT = """\
#!/bin/bash
# A dr-q sweep as an array: {what} in each element, without Ray. Submit it with sbatch, whose own options win over
# these lines. Every node must see the sweep's folder and this Python. Finished jobs end at once, so it may be submitted
# again; %8 after the range (sbatch --array=0-{last}%8) lets 8 elements run at once.
#SBATCH --job-name=dr-q-array
#SBATCH --array=0-{last}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem={mem}
{gpus}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={output}
# Two minutes before the time is up, or before a preemption that warns: checkpoints, then back into the queue.
#SBATCH --signal=B:USR1@120
{header}set -euo pipefail

python={python}
# Longest first.
jobs=(
{jobs}
)
each={each}
{service}started=()
# shellcheck disable=SC2317,SC2329  # called by traps
stop() {{
  trap '' USR1 TERM
  kill -TERM "${{started[@]}}" 2>/dev/null || true
  wait "${{started[@]}}" || true
}}
# shellcheck disable=SC2317,SC2329
requeue() {{
  stop
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
  exit 0
}}
trap requeue USR1
trap 'stop; exit 143' TERM

first=$((SLURM_ARRAY_TASK_ID * each))
for job in "${{jobs[@]:first:each}}"; do
  "$python" -m dr_q.sweep.job_process "$job" &
  started+=($!)
done
status=0
for process in "${{started[@]}}"; do
  wait "$process" || status=1
done
exit "$status"
"""

_SERVICE = """\
# Jobs that share a GPU compute side by side under CUDA's multi-process service, which numbers the GPUs from 0.
export CUDA_MPS_PIPE_DIRECTORY="${TMPDIR:-/tmp}/dr-q-mps-$SLURM_JOB_ID"
export CUDA_MPS_LOG_DIRECTORY="$CUDA_MPS_PIPE_DIRECTORY"
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
if nvidia-cuda-mps-control -d; then
  export CUDA_VISIBLE_DEVICES=0
else
  echo "there is no multi-process service on $(hostname): jobs share the GPU without it" >&2
fi
"""
_SERVICE_ON_NODES = """\
# Jobs that share a GPU compute side by side under CUDA's multi-process service; it lives as long as Ray on its node.
on_node=(bash -c 'nvidia-cuda-mps-control -d || true; exec "$@"' bash)
"""

_GIB_OF_A_JOB, _GIB_OF_A_SEED = 8, 1
"""Main memory of an element of the array, unless it is given."""


@dataclasses.dataclass(frozen=True)
class SlurmOptions:
    """What Slurm is asked for."""

    mem: str | None = None
    """Main memory of an element of the array, as sbatch takes it: 32G."""
    header: Path | None = None
    """A file with lines for the script's head: #SBATCH lines for partition, account and time, and commands (module)."""

    def __post_init__(self) -> None:
        """Refuse what sbatch would take for something else: 0 is all memory of a node."""
        if self.mem is not None and not re.fullmatch(r"[1-9][0-9]{0,8}[KMGT]?", self.mem):
            raise ConfigError(f"--mem must be a number above 0 with K, M, G or T, like 32G; got {shortened(self.mem)}")


def slurm_script(
    spec: SweepSpec,
    out: Path,
    options: SweepOptions,
    slurm: SlurmOptions | None = None,
    preset_file: Path | None = None,
    execution: dict[str, Any] | None = None,
) -> str:
    """The script for whole nodes; it is that of this Python."""
    gpus = options.gpus
    python = Path(sys.executable)
    shared = gpus is not None and 0 < gpus < 1
    more = [] if preset_file is None else ["--preset-file", str(full_path(preset_file))]
    return _NODES_SCRIPT.format(
        gpus="" if gpus == 0 else f"#SBATCH --gpus-per-node={max(1, int(gpus or 1))}\n",
        header=_header(slurm or SlurmOptions()),
        service=_SERVICE_ON_NODES if shared else "on_node=()\n",
        python=shlex.quote(str(python)),
        ray=shlex.quote(str(python.with_name("ray"))),
        command=shlex.join([*sweep_arguments(spec, full_path(out), options, execution), *more]),
    )


def array_script(
    jobs: Sequence[Job], share: Share, out: Path, options: SweepOptions, slurm: SlurmOptions | None = None
) -> str:
    """The script of an array: `options.jobs_per_gpu` jobs in each element, by default one."""
    slurm = slurm or SlurmOptions()
    each = options.jobs_per_gpu or 1
    seeds = max(job.settings.seeds for job in jobs)
    gib = each * (_GIB_OF_A_JOB + _GIB_OF_A_SEED * seeds)
    return _ARRAY_SCRIPT.format(
        what="a job" if each == 1 else f"{each} jobs that share a GPU",
        last=math.ceil(len(jobs) / each) - 1,
        cpus=math.ceil(each * share.cpus),
        mem=slurm.mem or f"{gib}G",
        gpus=f"#SBATCH --gres=gpu:{max(1, int(share.gpus))}\n" if share.gpus else "",
        output=f"{out}/slurm-%A_%a.log".replace(" ", "\\ "),
        header=_header(slurm),
        python=shlex.quote(sys.executable),
        jobs="\n".join(f"  {shlex.quote(str(job_file(job)))}" for job in jobs),
        each=each,
        service=_SERVICE if each > 1 else "",
    )


def write_slurm(
    spec: SweepSpec,
    out: Path,
    options: SweepOptions,
    file: Path,
    slurm: SlurmOptions | None = None,
    preset_file: Path | None = None,
    execution: dict[str, Any] | None = None,
) -> None:
    """Write the script for whole nodes to a new file."""
    _check_new(options, file)
    check_folder(spec, full_path(out))
    check_tasks(spec)
    _write(file, slurm_script(spec, out, options, slurm, preset_file, execution))


def write_slurm_array(
    spec: SweepSpec,
    out: Path,
    options: SweepOptions,
    file: Path,
    slurm: SlurmOptions | None = None,
    execution: dict[str, Any] | None = None,
) -> int:
    """Write the script of an array to a new file, and each job into the sweep's folder; how many elements it has."""
    _check_new(options, file)
    out = full_path(out)
    check_folder(spec, out)
    check_tasks(spec)
    gpus = 1.0 if options.gpus is None else options.gpus
    cpus = options.cpus_per_job or float(spec.seeds + CPUS_BESIDE_SIMULATORS)
    share = Share(cpus, gpus) if gpus else Share(cpus, cpu_threads=max(1, int(cpus)))
    script = array_script(spec.jobs(out), share, out, options, slurm)  # refuses a header that cannot be
    write_spec(spec, out, share.cpu_threads)
    jobs = [dataclasses.replace(job, execution=execution or {}) for job in spec.jobs(out)]
    jobs = longest_first([job for job in jobs if not progress_of(job).finished], on_gpu=gpus > 0)
    if not jobs:
        raise ConfigError(f"nothing is left to do in {out}")
    for job in jobs:
        write_job(job, share, out=str(out))
    script = array_script(jobs, share, out, options, slurm)
    _write(file, script)
    return math.ceil(len(jobs) / (options.jobs_per_gpu or 1))


def _check_new(options: SweepOptions, file: Path) -> None:
    if options.address is not None:
        raise ConfigError("--slurm starts a Ray cluster of its own; leave --address out")
    if file.exists():
        raise ConfigError(f"{file} is there already; remove it, or choose another name for the script")
    check_can_write(file)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text)
    file.chmod(0o755)


def _header(slurm: SlurmOptions) -> str:
    """The lines of the header file; #SBATCH lines count only before the first command, so they come first."""
    if slurm.header is None:
        return ""
    try:
        lines = read_small(slurm.header).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{slurm.header} cannot be used as the script's header: {why}") from None
    lines = [line for line in lines if line.strip() and not line.startswith("#!")]
    lines = sorted(lines, key=lambda line: not line.startswith("#SBATCH"))
    return "".join(f"{line}\n" for line in lines)


def sweep_arguments(
    spec: SweepSpec, out: Path, options: SweepOptions, execution: dict[str, Any] | None = None
) -> list[str]:
    """The command line of a sweep, without `dr-q`."""
    given = {
        "presets": spec.presets,
        "seeds": spec.seeds,
        "seed": spec.first_seed or None,
        "out": out,
        **{name: getattr(spec, name) for name in (*RUN_OPTIONS, *STOP_RULES)},
        "noise_dims": spec.noise_dims,
        **{name: value for name, value in dataclasses.asdict(options).items() if name != "local"},
        **(execution or {}),
        **spec.changes,
    }
    flags = {name for name, (field, _) in settings_of(Execution).items() if field.type is bool}
    arguments = ["sweep", *spec.tasks]
    for name, values in spec.grid.items():
        arguments += ["--grid", f"{name.replace('_', '-')}={','.join(map(str, values))}"]
    for name, value in given.items():
        if name in flags:
            arguments.append(option_name(name) if value else option_name(f"no_{name}"))
        elif value is not None:
            values = value if isinstance(value, tuple | list) else (value,)
            arguments += [option_name(name), *map(str, values)]
    return arguments
