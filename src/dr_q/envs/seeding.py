"""Random streams of a run, independent of each other and of other seeds' (D5).

A stream is named by what it is for and where in the run it is; nothing is drawn from a shared generator, so a run can
be resumed at any step.
"""

import numpy as np

_STREAMS = {"train": 1, "evaluation": 2, "noise": 3, "video": 4, "fresh": 5, "epsilon": 6, "best": 7}


def stream_seed(seed: int, stream: str, *where: int) -> int:
    """A 32-bit seed for a stream of a run's seed, at a place in it (an episode; a step and an episode)."""
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(_STREAMS[stream], *where))
    return int(sequence.generate_state(1)[0])
