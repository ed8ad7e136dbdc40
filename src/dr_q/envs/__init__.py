"""Simulators behind one small protocol; numpy in, numpy out, no jax.

Importing this package imports no simulator: a family imports its own when it makes an environment.
"""

from dr_q.envs.rendering import choose_backend, quiet_destructors

choose_backend()  # MuJoCo chooses when it is imported, which any environment may do

# Not its function `families`, which would hide the folder of that name.
from dr_q.envs.families import canonical, default_eval_every, default_steps, known_tasks, make_env, suite_tasks, suites
from dr_q.envs.families.base import DEFAULT_AGENT_STEPS, DEFAULT_EVAL_EVERY, Family, UnknownIdError
from dr_q.envs.noisy import NOISE_DIMS
from dr_q.envs.processes.packet import PacketLayout, Transitions
from dr_q.envs.processes.pool import DEFAULT_TIMEOUT, Pool, ProcessPool, cores, open_pool
from dr_q.envs.processes.restarts import RestartedError, Restarts
from dr_q.envs.processes.seed_envs import MOST_INFO_KEYS
from dr_q.envs.processes.source import Source
from dr_q.envs.processes.watchdog import CallInterruptedError, CallWatchdog, interrupting, keep_from_exiting
from dr_q.envs.protocol import SUCCESS, Env, EnvSpec, Step, closed, scalar
from dr_q.envs.seeding import stream_seed
from dr_q.paper import TaskInfo

__all__ = [
    "DEFAULT_AGENT_STEPS",
    "DEFAULT_EVAL_EVERY",
    "DEFAULT_TIMEOUT",
    "MOST_INFO_KEYS",
    "NOISE_DIMS",
    "SUCCESS",
    "CallInterruptedError",
    "CallWatchdog",
    "Env",
    "EnvSpec",
    "Family",
    "PacketLayout",
    "Pool",
    "ProcessPool",
    "RestartedError",
    "Restarts",
    "Source",
    "Step",
    "TaskInfo",
    "Transitions",
    "UnknownIdError",
    "canonical",
    "closed",
    "cores",
    "default_eval_every",
    "default_steps",
    "interrupting",
    "keep_from_exiting",
    "known_tasks",
    "make_env",
    "open_pool",
    "quiet_destructors",
    "scalar",
    "stream_seed",
    "suite_tasks",
    "suites",
]
