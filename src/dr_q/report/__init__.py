"""Results and what they are compared with; needs no jax."""

from dr_q.report.compare import Comparison, compare, other_differences
from dr_q.report.curves import plot_curves
from dr_q.report.model import Report, build_report
from dr_q.report.reference import Reference, compare_with_reference, read_references
from dr_q.report.results import Result, read_results, write_results
from dr_q.report.write import check_report_folder, write_report

__all__ = [
    "Comparison",
    "Reference",
    "Report",
    "Result",
    "build_report",
    "check_report_folder",
    "compare",
    "compare_with_reference",
    "other_differences",
    "plot_curves",
    "read_references",
    "read_results",
    "write_report",
    "write_results",
]
