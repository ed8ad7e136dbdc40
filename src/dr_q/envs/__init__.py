"""Simulators behind one small protocol; numpy in, numpy out, no jax."""

from dr_q.envs.rendering import choose_backend

choose_backend()  # mujoco takes one when it is imported, which is below

from dr_q.envs.noisy import NOISE_DIMS, NoisyState
from dr_q.envs.pool import InProcessPool, Pool, ProcessPool, Source, Transitions, cores, open_pool
from dr_q.envs.protocol import ActionScale, Env, EnvSpec, Step
from dr_q.envs.seat import PacketLayout
from dr_q.envs.seeding import stream_seed
from dr_q.envs.tasks import DEFAULT_AGENT_STEPS, SUITES, canonical, make_env, suite_tasks

__all__ = [
    "DEFAULT_AGENT_STEPS",
    "NOISE_DIMS",
    "SUITES",
    "ActionScale",
    "Env",
    "EnvSpec",
    "InProcessPool",
    "NoisyState",
    "PacketLayout",
    "Pool",
    "ProcessPool",
    "Source",
    "Step",
    "Transitions",
    "canonical",
    "cores",
    "make_env",
    "open_pool",
    "stream_seed",
    "suite_tasks",
]
