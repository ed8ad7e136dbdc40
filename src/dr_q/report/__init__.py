"""Results and what they are compared with; needs no jax."""

from dr_q.report.curves import plot_curves
from dr_q.report.results import Result, RunRecord, best_seed, read_results, read_run, write_results

__all__ = ["Result", "RunRecord", "best_seed", "plot_curves", "read_results", "read_run", "write_results"]
