"""Results and what they are compared with; needs no jax."""

from dr_q.report.compare import Comparison, compare
from dr_q.report.curves import plot_curves
from dr_q.report.results import Result, RunRecord, best_seed, read_results, read_run, write_results

__all__ = [
    "Comparison",
    "Result",
    "RunRecord",
    "best_seed",
    "compare",
    "plot_curves",
    "read_results",
    "read_run",
    "write_results",
]
