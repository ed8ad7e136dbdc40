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
    """Base of all errors that are reported in one line, without a traceback."""

    exit_code = FAILURE

    def __init__(self, message: str):
        super().__init__(one_line(message))


class ConfigError(DrQError, ValueError):
    """A setting, an argument or an option with a value that is not allowed."""

    exit_code = USAGE


class TaskError(DrQError, ValueError):
    """A task or an environment that cannot be made, or that DR.Q cannot train on."""

    exit_code = USAGE


class RunFolderError(DrQError, ValueError):
    """A folder that is not what the call needs: no run, no checkpoint, not empty, in use, or of another version."""

    exit_code = USAGE


class MissingPackageError(DrQError, ImportError):
    """An optional package that is not installed."""

    exit_code = USAGE


class DamagedFileError(DrQError, ValueError):
    """A file that does not hold what was once written to it."""


class ToolError(DrQError, RuntimeError):
    """An external tool that failed: ffmpeg, for instance."""


class TrainingError(DrQError, RuntimeError):
    """A run that cannot continue."""


class EnvError(DrQError, RuntimeError):
    """An environment that failed while it ran: which one, how, and where in its code."""


class WorkerError(DrQError, RuntimeError):
    """A simulator process that died or does not answer."""
