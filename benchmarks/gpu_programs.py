"""Which kernels training's two updates become on an H100 or H200, compiled on a machine that has none.

    python -m venv gpu && gpu/bin/pip install -e . "jax[cuda13]"
    gpu/bin/python benchmarks/gpu_programs.py --compute mixed                    # ten seeds, cheetah-run's sizes
    PYTHONPATH=OTHER/src gpu/bin/python benchmarks/gpu_programs.py --compute mixed     # another version

For each program and kind of kernel: how many there are, and the megabytes that they read and write. A replay that a
kernel gathers from counts whole; a product's workspace does not count. Divided by the memory's 4 TB/s this is the least
time of kernels that only move data. It says nothing about products, and nothing about kernels side by side: measure
with `variants.py` on a GPU. The compiler cannot try kernels out here, so it may choose others than there.
"""

import argparse
import collections
import functools
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

DEVICE = """
gpu_device_info {
  cuda_compute_capability { major: 9 } core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  l2_cache_size: 52428800 memory_bandwidth: 4000000000000 device_memory_size: 141000000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 2 }
device_description_str: "NVIDIA H200"
"""
BYTES = {"pred": 1, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8,
         "s64": 8, "u64": 8}  # fmt: skip
_MOVES = ("copy", "convert", "transpose", "reduce", "fusion", "custom-call")
"""Instructions that are kernels."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", default="float32", choices=("float32", "mixed"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pixels", action="store_true", help="observe three images of 84 x 84 instead of 17 numbers")
    parser.add_argument("--preset", default="dr.q")
    parser.add_argument("--out", type=Path, help="a folder for the compiled programs as text")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        sharding = device()
    except Exception as error:  # what is missing is said by the plugin, in kinds of its own
        print(f"gpu_programs.py: no compiler for CUDA: {error}"[:300], file=sys.stderr)
        return 2
    for name, text in programs(arguments, sharding).items():
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / f"{name}.hlo").write_text(text)
        print_kinds(name, kernels(text))
    return 0


def device() -> Any:
    """An H200 to compile for."""
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    topology = topologies.get_topology_desc("topology", "cuda", target_config=DEVICE, topology="1x1x1")
    return SingleDeviceSharding(topology.devices[0])


def programs(arguments: argparse.Namespace, sharding: Any) -> dict[str, str]:
    """The compiled programs as text."""
    import jax
    import jax.numpy as jnp

    from dr_q.config import preset
    from dr_q.learner import LearnerSpec, init_states, root_keys, steps
    from dr_q.learner.donation import DonatedState, DonatingStep, Packing
    from dr_q.learner.programs import GPU_OPTIONS
    from dr_q.networks import norm, pack
    from dr_q.spaces import ContinuousActions, ObsSpec, Spaces

    for module in (norm, pack):  # the kernels of our own, too
        setattr(module, "has_cuda", lambda: True)  # noqa: B010 - pyright knows no such attribute of a module
    obs = ObsSpec.image(3, 84, 84, stack=3) if arguments.pixels else ObsSpec.vector(17)
    spaces = Spaces(obs, ContinuousActions((-1.0,) * 6, (1.0,) * 6))
    spec = LearnerSpec(preset(arguments.preset, compute=arguments.compute), spaces, 100_000)
    roots = root_keys(range(arguments.seeds))

    def build(roots: Any) -> Any:
        states = init_states(spec, roots)
        round_agents = getattr(steps, "round_agents", None)  # versions before have none
        return states._replace(agents=round_agents(spec, states.agents)) if round_agents else states

    def placed(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    states = jax.eval_shape(build, roots)
    leaves = [placed(x) for x in jax.tree.leaves(states)]
    state = object.__new__(DonatedState)  # of shapes alone
    state.packing = Packing.of(states, states.replays)
    state.large = {i: leaves[i] for i in state.packing.large}
    state.packed = placed(jax.eval_shape(state.packing.pack, leaves))
    number = jax.ShapeDtypeStruct((arguments.seeds,), jnp.int32, sharding=sharding)
    options = {**GPU_OPTIONS, "xla_gpu_autotune_level": 0}
    found = {}
    for name in ("sync_targets_and_train_encoder", "update"):
        step = DonatingStep(functools.partial(getattr(steps, name), spec))
        print(f"compiling {name}", file=sys.stderr, flush=True)
        found[name] = step.lower(state, placed(roots), number).compile(options).as_text()
    return found


def kernels(text: str) -> dict[str, list[tuple[str, int]]]:
    """For each computation with kernels, the kind and the bytes of each."""
    found: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    shapes: dict[str, str] = {}
    computation = ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
            computation, shapes = "ENTRY" if head[1] else head[2], {}
        elif made := re.match(r"\s+(?:ROOT )?%([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)", line):
            name, shape, kind, rest = made.groups()
            shapes[name] = shape
            if kind in _MOVES and not computation.startswith("fused"):
                operands = re.findall(r"%([\w.-]+)", rest.split("), ")[0])
                moved = size(shape) + sum(size(shapes.get(operand, "")) for operand in operands)
                target = re.search(r'custom_call_target="([^"]+)"', rest)
                own = target[1] if target else re.sub(r"[._\d]+$", "", name) if kind == "fusion" else kind
                found[computation].append((own, moved))
    return {name: rows for name, rows in found.items() if len(rows) > 5}


def size(shape: str) -> int:
    """Bytes of a shape as text; without a product's workspace, which is bytes of one axis."""
    parts = re.findall(r"(\w+)\[([\d,]*)\]", shape)
    if len(parts) > 1 and parts[-1][0] == "s8":
        parts = parts[:-1]
    return sum(BYTES.get(kind, 0) * math.prod(int(n) for n in dims.split(",") if n) for kind, dims in parts)


def print_kinds(program: str, computations: dict[str, list[tuple[str, int]]]) -> None:
    """Kinds of each computation, those that move most first."""
    for computation, rows in computations.items():
        moved: collections.Counter[str] = collections.Counter()
        for kind, count in rows:
            moved[kind] += count
        many = collections.Counter(kind for kind, _ in rows)
        print(f"\n{program}, {computation}: {len(rows)} kernels, {sum(moved.values()) / 1e6:,.0f} MB")
        for kind, count in moved.most_common(12):
            print(f"{count / 1e6:10,.1f} MB {many[kind]:4d} {kind}")


if __name__ == "__main__":
    sys.exit(main())
