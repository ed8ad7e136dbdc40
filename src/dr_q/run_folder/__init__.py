"""The files of a run, written and read here and nowhere else. No jax.

RUN/run.json        status, settings, versions            (record.py)
    evals.csv       evaluations, a row for each seed      (tables.py)
    metrics.csv     what updates saw, and times           (tables.py)
    checkpoints/    everything that a resume needs        (checkpoints.py)
    policy/         what acts, as of the last evaluation  (policies.py)
    policy/best/    the best of each seed over time       (policies.py)
    videos/         of the policy, now and then           (record.py)
    tensorboard/    the same metrics for TensorBoard
    wandb_id        the name at Weights & Biases          (record.py)
"""

from dr_q.run_folder.arrays import read_arrays, write_arrays
from dr_q.run_folder.checkpoints import Checkpoint, Checkpoints, Chunk, StoredCheckpoint, checkpoint_steps
from dr_q.run_folder.csv_files import Table, damaged_line, finite_number, read_rows, read_table, whole_number
from dr_q.run_folder.find import find_runs, is_run, run_of_policy, runs_without_evaluations
from dr_q.run_folder.formats import FORMAT
from dr_q.run_folder.json_files import Fields, read_json
from dr_q.run_folder.lock import lock_run_folder
from dr_q.run_folder.policies import (
    BEST_FOLDER,
    POLICY_FOLDER,
    policy_file,
    policy_folder,
    policy_record,
    read_policy_weights,
    step_of_seed,
    tidy_policies,
    write_policies,
)
from dr_q.run_folder.record import (
    RunJson,
    RunRecord,
    check_new_folder,
    own_evaluation_rows,
    read_run,
    read_run_json,
    tensorboard_folder,
    video_file,
    wandb_id,
)
from dr_q.run_folder.source import source_digest
from dr_q.run_folder.tables import (
    EVALS,
    Evaluation,
    RunTables,
    evaluation_rows,
    evaluations_begin_with,
    has_learnt,
    last_evaluations,
    last_metrics,
    metric_columns,
    metric_curves,
    run_timing,
    seed_steps_per_s,
)

__all__ = [
    "BEST_FOLDER",
    "EVALS",
    "FORMAT",
    "POLICY_FOLDER",
    "Checkpoint",
    "Checkpoints",
    "Chunk",
    "Evaluation",
    "Fields",
    "RunJson",
    "RunRecord",
    "RunTables",
    "StoredCheckpoint",
    "Table",
    "check_new_folder",
    "checkpoint_steps",
    "damaged_line",
    "evaluation_rows",
    "evaluations_begin_with",
    "find_runs",
    "finite_number",
    "has_learnt",
    "is_run",
    "last_evaluations",
    "last_metrics",
    "lock_run_folder",
    "metric_columns",
    "metric_curves",
    "own_evaluation_rows",
    "policy_file",
    "policy_folder",
    "policy_record",
    "read_arrays",
    "read_json",
    "read_policy_weights",
    "read_rows",
    "read_run",
    "read_run_json",
    "read_table",
    "run_of_policy",
    "run_timing",
    "runs_without_evaluations",
    "seed_steps_per_s",
    "source_digest",
    "step_of_seed",
    "tensorboard_folder",
    "tidy_policies",
    "video_file",
    "wandb_id",
    "whole_number",
    "write_arrays",
    "write_policies",
]
