"""What a run holds in memory, and where, decided before anything is allocated."""

import contextlib
import dataclasses
import math
import os
from pathlib import Path
from typing import NamedTuple

import jax

from dr_q import replay as rp
from dr_q.envs import EnvSpec
from dr_q.kit import ConfigError, spelled
from dr_q.learner import Device, LearnerSpec, Placement, SeedStates, init_states, root_keys, round_agents
from dr_q.networks import conv_outputs
from dr_q.settings import Settings
from dr_q.spaces import Image

GIB = 2**30
_SHARED_SHARE = 0.9
"""Of main memory where it is the device's too: the rest is for Python, simulators and the system."""
_HOST_SHARE = 0.8
"""Of the machine's memory, what frames may take."""


class MemoryPart(NamedTuple):
    """Something that takes memory on each device, or in the host's."""

    what: str
    size: int
    """Bytes."""
    on_host: bool = False


@dataclasses.dataclass(frozen=True)
class Memory:
    """What there is, in bytes."""

    device: str
    device_bytes: int
    """Of one device."""
    host_bytes: int
    shared: bool = False
    """Whether both are the same memory."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What goes where."""

    spec: LearnerSpec
    devices: int
    parts: list[MemoryPart]
    memory: Memory

    @property
    def on_device(self) -> int:
        """Bytes on each device."""
        return sum(part.size for part in self.parts if not part.on_host)

    @property
    def on_host(self) -> int:
        """Bytes in host memory."""
        return sum(part.size for part in self.parts if part.on_host)

    def lines(self) -> list[str]:
        """For people."""
        each = " each" if self.devices > 1 else ""
        where = self.memory.device if self.memory.shared else f"memory on {self.devices} x {self.memory.device}"
        said = [f"{where}: {_gib(self.on_device)}{each} of {_gib(self.memory.device_bytes)}"]
        for part in self.parts:
            where = f" in host memory, of {_gib(self.memory.host_bytes)}" if part.on_host else ""
            said.append(f"  {part.what}: {_gib(part.size)}{where}")
        return said


def memory_of(device: Device) -> Memory:
    """What a device and this machine have."""
    host = main_memory()
    if device.platform == "cpu":
        return Memory("main memory", host, host, shared=True)
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    return Memory(device.device_kind, limit or host, host)


def main_memory(processes: Path = Path("/proc/self/cgroup"), limits: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may have: the machine's, or less in a container or under a scheduler (cgroups)."""
    allowed = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for line in processes.read_text().splitlines() if processes.exists() else ():
        _, kinds, group = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root, name = (limits / "memory", "memory.limit_in_bytes") if kinds else (limits, "memory.max")
        own = root / group.lstrip("/")
        for folder in (own, *own.parents):  # a group has its parents' limits as well
            if not folder.is_relative_to(root):
                break
            with contextlib.suppress(OSError, ValueError):  # "max": none
                allowed.append(int((folder / name).read_text()))
    return min(allowed)


def make_plan(settings: Settings, spec: EnvSpec, memory: Memory, devices: int = 1, prefilled: int = 0) -> Plan:
    """Everything on the device if it fits there, else the frames in host memory; refuse what fits neither way.

    `prefilled` slots are filled before the run begins.
    """
    config = settings.config
    shortest = 1 if spec.can_terminate or spec.episode_length is None else spec.episode_length
    lanes = settings.num_envs
    least = rp.smallest_capacity(config.horizon, spec.obs.stack, lanes)
    if config.replay_capacity < least:
        stacked = f" and {spec.obs.stack} stacked frames" if spec.obs.stack > 1 else ""
        of_lanes = f" in each of {lanes} environments" if lanes > 1 else ""
        raise ConfigError(
            f"{spelled('replay_capacity')} must be at least {least} for windows of {config.horizon} transitions"
            f"{stacked}{of_lanes}, got {config.replay_capacity}"
        )
    slots = rp.slots_to_fill(settings.steps, config.replay_capacity, shortest, lanes) + prefilled
    slots = rp.slots_to_allocate(slots, spec.obs, spec.spaces.action.dim, lanes)
    capacity = max(min(slots, config.replay_capacity // lanes * lanes), least)
    for on_host in (False, True):
        learner_spec = LearnerSpec(config, spec.spaces.sizes(), capacity, on_host, lanes)
        plan = _plan(learner_spec, settings.seeds, devices, memory)
        if _fits(plan):
            return plan

    fitting = [c for c in (_largest(settings.seeds, devices, plan, host, least) for host in (False, True)) if c]
    largest = f"the largest that fits is {spelled('replay_capacity')} {max(fitting, default=0)}"
    advice = largest if fitting else "not even the smallest replay fits"
    raise ConfigError(
        f"{settings.seeds} seeds with {capacity:,} slots each need {_gib(plan.on_device + plan.on_host)}; there are "
        f"{_gib(memory.device_bytes)} on {memory.device} and {_gib(memory.host_bytes)} in host memory; {advice}; "
        f"or use fewer {spelled('seeds')} or {spelled('steps')}"
    )


def _plan(spec: LearnerSpec, seeds: int, devices: int, memory: Memory) -> Plan:
    here = seeds // devices

    def size(tree: object) -> int:
        return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))

    def build() -> SeedStates:
        states = init_states(spec._replace(frames_on_host=False), root_keys([0]))
        return states._replace(agents=round_agents(spec, states.agents))

    agent, replay = jax.eval_shape(build)
    assert replay.storage.obs is not None
    frames = size(replay.storage.obs)
    on_host = spec.frames_on_host
    parts = [
        MemoryPart("networks and targets", here * size((agent.online, agent.target, agent.rounded))),
        MemoryPart("optimisers", here * size((agent.encoder_optimiser, agent.actor_optimiser, agent.critic_optimiser))),
        MemoryPart(f"replay of {spec.capacity:,} slots: observations", (seeds if on_host else here) * frames, on_host),
        MemoryPart("replay: all else", here * (size(replay) - frames)),
        MemoryPart("workspace, about", here * _workspace(spec, size(agent.online.encoder))),
    ]
    return Plan(spec, devices, parts, memory)


def _workspace(spec: LearnerSpec, encoder_bytes: int) -> int:
    """Bytes that one seed's updates need besides what they keep: gradients, and activations of the roll-out."""
    config = spec.config
    rows = (config.encoder_horizon + 1) * config.batch_size
    widths = 10 * config.encoder_hidden + 8 * (config.zs_dim + config.zsa_dim)
    for _, part in spec.spaces.obs.parts:
        if isinstance(part, Image):
            widths += 3 * (math.prod(part.shape) + conv_outputs(part))
    return 2 * encoder_bytes + 4 * rows * widths


def _fits(plan: Plan) -> bool:
    memory = plan.memory
    if memory.shared and plan.devices * plan.on_device + plan.on_host > _SHARED_SHARE * memory.host_bytes:
        return False
    return plan.on_device <= memory.device_bytes and plan.on_host <= _HOST_SHARE * memory.host_bytes


def _largest(seeds: int, devices: int, plan: Plan, on_host: bool, least: int) -> int | None:
    """The largest capacity that fits, to three digits."""

    def fits(capacity: int) -> bool:
        whole = capacity // plan.spec.lanes * plan.spec.lanes
        spec = plan.spec._replace(capacity=whole, frames_on_host=on_host)
        return _fits(_plan(spec, seeds, devices, plan.memory))

    low, high = least, plan.spec.capacity
    if not fits(low):
        return None
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    digits = max(0, len(str(low)) - 3)
    return max(least, low // 10**digits * 10**digits)


def _gib(size: int) -> str:
    if size < 0.1 * GIB:
        return f"{size / 2**20:.1f} MiB"
    return f"{size / GIB:.2f} GiB" if size < 100 * GIB else f"{size / GIB:.0f} GiB"


def plan_for(settings: Settings, spec: EnvSpec, device_memory: float | None = None, *, prefilled: int = 0) -> Plan:
    """What goes where on this machine; `device_memory` is in GiB, where a device is not all ours."""
    devices = Placement(settings.seeds).devices
    memory = memory_of(devices[0])
    if device_memory is not None:
        memory = dataclasses.replace(memory, device_bytes=int(device_memory * GIB))
    return make_plan(settings, spec, memory, len(devices), prefilled)
