"""DeepMind Control tasks in pixels: stacks of three 84 x 84 frames."""

from dr_q.envs.families.base import Family, paper_tasks_of
from dr_q.envs.families.dmc import DmcEnv

FAMILY = Family(
    prefix="dmc-visual",
    title="DeepMind Control in pixels",
    spelling="dmc-visual/DOMAIN-TASK",
    tasks=paper_tasks_of("dmc-visual"),
    make=lambda name, render: DmcEnv(name, pixels=True),
    install="pip install 'dm-control' 'mujoco<4'",
)
