"""Many runs as one resumable unit, on one machine or a cluster (Ray), or without Ray."""

from dr_q.sweep.driver import SweepFailed, SweepInterrupted, run_sweep
from dr_q.sweep.estimate import estimate
from dr_q.sweep.slurm import SlurmOptions, write_slurm, write_slurm_array
from dr_q.sweep.spec import SweepOptions, SweepSpec

__all__ = [
    "SlurmOptions",
    "SweepFailed",
    "SweepInterrupted",
    "SweepOptions",
    "SweepSpec",
    "estimate",
    "run_sweep",
    "write_slurm",
    "write_slurm_array",
]
