"""Results and what they are compared with; needs no jax."""

from dr_q.report.curves import plot_curves
from dr_q.report.published import Published, published_score
from dr_q.report.results import RunRecord, best_seed, read_run

__all__ = ["Published", "RunRecord", "best_seed", "plot_curves", "published_score", "read_run"]
