"""Gymnasium environments by their registered names: the paper's MuJoCo tasks, and any other."""

from dr_q.envs.families.base import Family, paper_tasks_of
from dr_q.envs.protocol import Env


def make_gym(name: str, render: bool) -> Env:
    """An environment by its id, such as `Ant-v4`, or `module:Id` for one that a module registers."""
    from dr_q.envs.gymnasium_adapter import GymEnv, make_registered

    return GymEnv(lambda: make_registered(name, render), name)


FAMILY = Family(
    prefix="gym",
    title="Gymnasium",
    spelling="gym/ID",
    tasks=paper_tasks_of("gym"),
    make=make_gym,
    probe="gym/Hopper-v4",
    install="pip install 'gymnasium[mujoco]'",
)
