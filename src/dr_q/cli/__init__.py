"""The command `dr-q`: parse, call, exit code."""

import contextlib
import errno
import os
import select
import sys
from pathlib import Path
from typing import Any

from dr_q.cli.figures import ANALYSE, Plot
from dr_q.cli.help import help_text
from dr_q.cli.machine import Bench, Check, Doctor, Version
from dr_q.cli.paper import Presets, PublishedScores, Tasks
from dr_q.cli.parse import Group, Help, parse
from dr_q.cli.policies import Eval, Export, ImportAuthors, Video
from dr_q.cli.results import Compare, Report, Results
from dr_q.cli.sweeps import EXPERIMENT, Sweep, Tune, Watch
from dr_q.cli.training import Train
from dr_q.kit import DrQError, MissingPackageError, one_line, spelled_as_options
from dr_q.kit.errors import FAILURE, USAGE

INTERRUPTED = 130
CLOSED_PIPE = 141
_CANNOT_BE_THERE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)
"""What a path gives that a command cannot use: another one must be given."""
COMMANDS = Group(
    "DR.Q: debiased model-based representations for continuous control.",
    {
        "train": Train,
        "sweep": Sweep,
        "tune": Tune,
        "watch": Watch,
        "eval": Eval,
        "video": Video,
        "export": Export,
        "import-authors": ImportAuthors,
        "plot": Plot,
        "analyse": ANALYSE,
        "experiment": EXPERIMENT,
        "tasks": Tasks,
        "published": PublishedScores,
        "results": Results,
        "compare": Compare,
        "report": Report,
        "presets": Presets,
        "doctor": Doctor,
        "check": Check,
        "bench": Bench,
        "version": Version,
    },
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; bad input gives one line and exit code 2, signals and closed pipes no traceback."""
    with contextlib.suppress(OSError):  # the folder has been removed
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.append(here)  # a console script has not got it, and module:Id is often a file right here
    try:
        try:
            return _run_command(sys.argv[1:] if arguments is None else arguments)
        finally:
            if sys.stdout is not None:  # closed: dr-q ... >&-
                sys.stdout.flush()
    except KeyboardInterrupt:
        print("dr-q: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if sys.stdout is None or not _reader_left():
            raise
        return CLOSED_PIPE


def _reader_left() -> bool:
    """Whether nobody reads the standard output any more (`dr-q ... | head`); it is silent from then on."""
    out = sys.stdout.fileno()
    watch = select.poll()
    watch.register(out, 0)
    if not watch.poll(0):  # errors are always reported
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return True


def _run_command(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        arguments = ["version"]
    try:
        with spelled_as_options():
            command = parse(COMMANDS, arguments)
            if isinstance(command, Help):
                print(help_text(command))
                return 0
            return _run(command, arguments[0])
    except DrQError as error:
        print(f"dr-q: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        place = "a file" if error.filename is None else error.filename  # writing itself does not say which it was
        print(f"dr-q: {one_line(f'cannot use {place}: {error.strerror or error}')}", file=sys.stderr)
        return USAGE if error.errno in _CANNOT_BE_THERE else FAILURE


def _run(command: Any, called: str) -> int:
    """Run a command; of a package that is missing, say which extra of dr-q installs it (the command's `extra`)."""
    try:
        return command.run()
    except DrQError:  # a MissingPackageError is an ImportError, too
        raise
    except ImportError as error:
        if not hasattr(command, "extra"):
            raise
        install = f"pip install 'dr-q[{command.extra}]'"
        raise MissingPackageError(f"{called} needs {error.name}, which is not installed: {install}") from error


__all__ = ["COMMANDS", "main"]
