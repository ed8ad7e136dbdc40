"""Where environments come from."""

import dataclasses

from dr_q.envs.families import EnvFactory, make_env
from dr_q.envs.protocol import Env


@dataclasses.dataclass(frozen=True)
class Source:
    """Where environments come from."""

    task: str | EnvFactory
    noise_dims: int = 0
    info_keys: tuple[str, ...] = ()
    """Entries of `info` to read in every training step; `MOST_INFO_KEYS` at most."""
    probed: bool = False
    """Whether the first seed's environment is looked at before it is used (`probe.py`)."""

    def make(self) -> Env:
        """A fresh environment."""
        return make_env(self.task, noise_dims=self.noise_dims)
