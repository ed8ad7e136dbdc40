"""Errors by kind. A message is one line: what happened, the value, what is allowed, what to do next."""

USAGE, FAILURE = 2, 1
"""Exit codes of the command line: what was asked for cannot be done; what was rightly asked for failed."""
_LONGEST_WORD, _LONGEST_LINE = 300, 2_000
"""Characters of a message: names and paths that users give may have any length."""


def one_line(message: str) -> str:
    """A message as it is shown: in one line, without the middle of what is too long to read."""
    words = (word if len(word) <= _LONGEST_WORD else _cut(word, _LONGEST_WORD) for word in message.split())
    return _cut(" ".join(words), _LONGEST_LINE)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]}...({len(text):,} characters)...{text[-end:]}"


class DrQError(Exception):
    """Base class of all errors of this package.

    A message has one line: what happened, the value, what is allowed, what to do next. The command line prints it
    without a traceback.

    Example:
        ```python
        try:
            result = dr_q.train("dmc/walker-walk", out="runs/walker")
        except dr_q.DrQError as error:
            print(f"{type(error).__name__}: {error}")
        ```
    """

    exit_code = FAILURE
    """Exit code of the command line: 1 if it started and failed, 2 if the request cannot be fulfilled."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


class ConfigError(DrQError, ValueError):
    """A setting, an argument or an option is unknown, or has a value that is not allowed."""

    exit_code = USAGE


class TaskError(DrQError, ValueError):
    """A task is unknown, its environment cannot be made, or DR.Q cannot train on its spaces."""

    exit_code = USAGE


class RunFolderError(DrQError, ValueError):
    """A folder does not fit the call: no run, no checkpoint, not empty, in use, or written by another version."""

    exit_code = USAGE


class MissingPackageError(DrQError, ImportError):
    """An optional package is not installed. The message has the command that installs it."""

    exit_code = USAGE


class DamagedFileError(DrQError, ValueError):
    """A file is damaged: incomplete, changed, or not in the expected format."""


class ToolError(DrQError, RuntimeError):
    """An external tool failed, for instance ffmpeg."""


class TrainingError(DrQError, RuntimeError):
    """A run cannot continue: NaN or infinite values, no data to learn from, a checkpoint that cannot be written."""


class EnvError(DrQError, RuntimeError):
    """An environment failed during a run. The message says which seed, how, and where in its code."""


class WorkerError(DrQError, RuntimeError):
    """A simulator process died or does not answer."""
