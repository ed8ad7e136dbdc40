"""The compiled programs of a run, shared by all learners with the same spec on the same devices."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dr_q.config import Config
from dr_q.learner import steps
from dr_q.learner.donation import DonatingStep
from dr_q.learner.placement import Device, Placement
from dr_q.learner.steps import LearnerSpec

GPU_OPTIONS = {
    # Kernels that do not depend on each other run side by side.
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    # cuBLAS is as fast for these products, and choosing among Triton's takes half of the compile time.
    "xla_gpu_enable_triton_gemm": False,
    # Merging products that share an operand copies the weights together first.
    "xla_gpu_dot_merger_threshold_mb": 0,
    # A product that adds a slice of another array gets a slow kernel if it reads the slice itself.
    "xla_gpu_enable_dynamic_slice_fusion": False,
}
CPU_OPTIONS = {
    # Loops over elements fill the registers of CPUs with AVX-512; others use what they have.
    "xla_cpu_prefer_vector_width": 512,
    # YNNPACK computes products and what follows them. Sums alone, which it also takes by default, are slow in it.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
}
"""Both together make updates of the preset `quick` 1.16 to 1.20 times as fast (benchmarks/results/optimisation.md)."""


class Programs:
    """The compiled functions of a spec, for a number of seeds on given devices."""

    def __init__(self, spec: LearnerSpec, placement: Placement):
        spread = placement.spread
        options = compiler_options(placement.devices[0].platform)

        def function(step: Callable[..., Any]) -> Any:
            return jax.jit(spread(step))

        def donating(step: Callable[..., Any]) -> DonatingStep:
            return DonatingStep(functools.partial(step, spec), spread, options)

        self.init_states = function(functools.partial(steps.init_states, spec))
        self.first_action = function(functools.partial(steps.first_action, spec))
        self.first_policy_action = function(functools.partial(steps.first_policy_action, spec))
        self.round_agents = function(functools.partial(steps.round_agents, spec))
        self.agents_around = function(functools.partial(steps.agents_around, spec))
        self.add_recorded = donating(steps.add_recorded)
        self.act_randomly, self.act = donating(steps.act_randomly), donating(steps.act)
        self.add, self.add_and_update = donating(steps.add), donating(steps.add_and_update)
        self.greedy = function(steps.greedy)
        self.copy = function(lambda tree: jax.tree.map(jnp.copy, tree))
        self.have_valid_start = function(steps.have_valid_start)
        self.sync_targets_and_train_encoder = donating(steps.sync_targets_and_train_encoder)
        self.update = donating(steps.update)
        self.plan_encoder_training = donating(steps.plan_encoder_training)
        self.learn_encoder = donating(steps.learn_encoder)
        self.learn_actor_critic = donating(steps.learn_actor_critic)
        self.plan_update = function(functools.partial(steps.plan_update, spec))


@functools.cache
def compiler_options(platform: str) -> dict[str, Any]:
    """What the programs of training are compiled with on a kind of device.

    Another version of jaxlib may not know those of the CPU. They make programs faster and nothing else, so an unknown
    one is left out.
    """
    if platform == "cpu":
        return {name: value for name, value in CPU_OPTIONS.items() if _is_known(name, value)}
    return GPU_OPTIONS if platform == "gpu" else {}


def _is_known(name: str, value: Any) -> bool:
    """Whether the compiler for the CPU takes an option."""
    with jax.default_device(jax.devices("cpu")[0]):
        trivial = jax.jit(lambda: jnp.zeros(())).lower()
    try:
        trivial.compile({name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


@functools.lru_cache(maxsize=16)
def programs_for(spec: LearnerSpec, seeds: int, devices: tuple[Device, ...]) -> Programs:
    """Those of a spec; compiled when first used."""
    return Programs(spec, Placement(seeds, devices))


def compiled_part(spec: LearnerSpec) -> LearnerSpec:
    """The spec without settings that no program depends on: specs that differ in these alone share their programs."""
    default = Config()
    host_only = {name: getattr(default, name) for name in ("exploration_steps", "replay_capacity")}
    return spec._replace(config=dataclasses.replace(spec.config, **host_only))
