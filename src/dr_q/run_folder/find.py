"""Finding runs in folders."""

from collections.abc import Iterable
from pathlib import Path

from dr_q.kit import RunFolderError, full_path
from dr_q.run_folder.policies import BEST_FOLDER, POLICY_FOLDER
from dr_q.run_folder.record import RUN_JSON
from dr_q.run_folder.tables import EVALS


def is_run(folder: Path) -> bool:
    """Whether a run has begun in the folder."""
    return (folder / RUN_JSON).exists()


def run_of_policy(path: Path) -> Path | None:
    """The run that a run's folder, or its `policy` folder, belongs to; None for a policy that has left its run."""
    path = full_path(path)
    if path.name == BEST_FOLDER and path.parent.name == POLICY_FOLDER:
        path = path.parent
    run = path.parent if path.name == POLICY_FOLDER and not is_run(path) else path
    return run if is_run(run) else None


def find_runs(path: str | Path) -> list[Path]:
    """The run in a folder, or those under it that have evaluations; RunFolderError where there is no run."""
    path = Path(path)
    if path.is_file():
        raise RunFolderError(f"{path} is a file; give a run's folder or a folder of runs")
    if not path.is_dir():
        raise RunFolderError(f"{path} is not there; give a run's folder or a folder of runs")
    if is_run(path):
        return [path]
    runs = sorted(file.parent for file in path.rglob(RUN_JSON))
    if not runs:
        raise RunFolderError(f"{path} holds no run: no run.json in it or under it; give a folder that runs are in")
    return [run for run in runs if (run / EVALS).exists()]


def runs_without_evaluations(paths: Iterable[str | Path]) -> list[Path]:
    """The runs below these folders that `find_runs` leaves out."""
    folders = [path for path in map(Path, paths) if path.is_dir() and not is_run(path)]
    below = {file.parent for path in folders for file in path.rglob(RUN_JSON)}
    return sorted(run for run in below if not (run / EVALS).exists())
