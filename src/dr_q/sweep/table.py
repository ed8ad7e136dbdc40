"""One live table in a terminal, plain lines elsewhere."""

from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dr_q.sweep.progress import Progress
from dr_q.sweep.spec import Job

_SPARE_LINES = 4
"""Of the terminal, for the head and the line under the table."""
_WIDE = 200
"""Columns of a table that is printed to no terminal."""
_ORDER = ("failed", "silent", "running", "retrying", "stopping", "waiting", "stopped", "finished")


class Row:
    """What is shown of a job."""

    def __init__(self, job: Job, progress: Progress):
        self.job = job
        self.progress = progress
        self.state = "finished" if progress.finished else "waiting"
        self.note = ""
        """Which retry it is, or why it failed."""


class Board:
    """Shows all rows, as they are when `show` is called."""

    def __init__(self, rows: Sequence[Row], *, why: bool = False):
        """`why`: whether the table says why jobs failed; a driver says it in lines of their own."""
        self._rows = rows
        self._with_note = ("retrying", "silent", "failed") if why else ("retrying",)
        self._console = Console(soft_wrap=True, highlight=False)
        self._live: Live | None = None
        self._said = {row.job.name: row.progress.evaluated_at for row in rows}

    def __enter__(self) -> "Board":
        """Start the table."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it as it is."""
        if self._live is not None:
            self.show()
            self._live.stop()

    def say(self, line: str) -> None:
        """A line, above the table if there is one."""
        self._console.print(line, markup=False)

    def show(self) -> None:
        """The table; where there is none, a line for each evaluation since the last call."""
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            return
        for row in self._rows:
            progress = row.progress
            if progress.score is not None and progress.evaluated_at > self._said[row.job.name]:
                self._said[row.job.name] = progress.evaluated_at
                self.say(
                    f"{row.job.name}: step {progress.evaluated_at:,} of {row.job.settings.steps:,}, "
                    f"return {progress.score:.1f}{_rate_and_left(row)}"
                )

    def print_once(self) -> None:
        """The table, once, also where there is no terminal."""
        console = self._console if self.is_live else Console(width=_WIDE, highlight=False)
        console.print(self.table(len(self._rows)))

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal for a table that changes."""
        return self._console.is_terminal

    def table(self, room: int | None = None) -> Table:
        """All rows, or those that need looking at first if the terminal is small."""
        counts = {state: sum(row.state == state for row in self._rows) for state in _ORDER}
        caption = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        table = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
        for name in ("task", "preset"):
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        for name in ("steps", "return", "seed-steps/s", "left"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("state", no_wrap=True)
        room = max(1, self._console.height - _SPARE_LINES) if room is None else room
        rows = list(self._rows)
        if len(rows) > room:  # what needs looking at first
            rows = sorted(rows, key=lambda row: _ORDER.index(row.state))[:room]
        for row in rows:
            progress = row.progress
            table.add_row(
                row.job.task,
                row.job.preset,
                f"{progress.agent_steps:,} / {row.job.settings.steps:,}",
                "" if progress.score is None else f"{progress.score:.1f}",
                f"{progress.seed_steps_per_s:,.0f}" if progress.seed_steps_per_s and row.state == "running" else "",
                duration(seconds_left(row)) if row.state == "running" else "",
                f"{row.state}, {row.note}" if row.note and row.state in self._with_note else row.state,
            )
        return table


def seconds_left(row: Row) -> float | None:
    """Of one job, at the speed it has."""
    rate = row.progress.seed_steps_per_s
    settings = row.job.settings
    return (settings.steps - row.progress.agent_steps) * settings.seeds / rate if rate else None


def duration(seconds: float | None) -> str:
    """As h:mm; empty if unknown."""
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h"


def _rate_and_left(row: Row) -> str:
    rate = row.progress.seed_steps_per_s
    return f", {rate:,.0f} seed-steps/s, {duration(seconds_left(row))} left" if rate else ""
