"""Results and what they are compared with; needs no jax."""

from dr_q.report.compare import Comparison, TaskComparison, compare, other_differences
from dr_q.report.curves import plot_curves
from dr_q.report.model import Report, build_report
from dr_q.report.reference import (
    Reference,
    ReferenceComparison,
    SuiteDifference,
    compare_with_reference,
    read_references,
)
from dr_q.report.results import Result, labelled_runs, read_results, write_results
from dr_q.report.statistics import Estimate, Sample
from dr_q.report.write import check_report_folder, write_report
from dr_q.run_folder import RunRecord

__all__ = [
    "Comparison",
    "Estimate",
    "Reference",
    "ReferenceComparison",
    "Report",
    "Result",
    "RunRecord",
    "Sample",
    "SuiteDifference",
    "TaskComparison",
    "build_report",
    "check_report_folder",
    "compare",
    "compare_with_reference",
    "labelled_runs",
    "other_differences",
    "plot_curves",
    "read_references",
    "read_results",
    "write_report",
    "write_results",
]
