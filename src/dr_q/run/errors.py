"""What ends a run before its time."""


class TrainingError(RuntimeError):
    """A run that cannot go on: why, and what to do."""
