"""How commands print: progress, tables, notes."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def say(line: str) -> None:
    """Print progress, which is not a command's output."""
    print(line, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, width: int, title: str | None = None) -> None:
    """Print a table, as wide as the terminal; `width` is used where there is none."""
    from rich.console import Console  # loaded here: --help needs no tables
    from rich.table import Table

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # left to `main`: rich would end the process with exit code 1

    table = Table(*columns, box=None, pad_edge=False, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Terminal(width=None if sys.stdout.isatty() else width).print(table)


def say_what_is_left_out(sources: Sequence[Path]) -> None:
    """Name the runs in folders that have no evaluation yet."""
    from dr_q.run_folder import runs_without_evaluations

    for run in runs_without_evaluations(sources):
        say(f"dr-q: {run} has no evaluation yet and is left out")
