"""What each way of computing an update takes on a device, all of them alternating in one process.

    python benchmarks/variants.py --out variants.json                     # all groups
    python benchmarks/variants.py --out variants.json --groups states     # ten seeds, cheetah-run's sizes
    python benchmarks/variants.py --out variants.json --groups cpu --preset quick     # compiler options of a CPU

Each variant is the same two programs of training (a target period's encoder updates, and a critic + actor update),
traced with other settings or compiled with other options. One that fails is reported and left out. After each round the
file has all figures so far: milliseconds of an update (median of the rounds), its ratio to the first variant, and how
much its encoder and critic losses on the same batches differ from the first variant's. With `--profile` also the
kernels of the second variant of each group.
"""

import concurrent.futures
import dataclasses
import json
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import tyro

TRITON = {"xla_gpu_enable_triton_gemm": True}
WIDE = {"xla_cpu_prefer_vector_width": 512}
PRODUCTS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"}


class Variant(NamedTuple):
    """One way to compute."""

    name: str
    compute: str = "float32"
    output_alone: bool = True
    """Whether norms without a gradient write nothing else (`norm.OUTPUT_ALONE`)."""
    pack_float32: bool = False
    """`packed_convolutions.PACK_FLOAT32`."""
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """For the compiler, on top of training's."""


class Group(NamedTuple):
    """Variants at one size."""

    seeds: int
    pixels: bool
    variants: tuple[Variant, ...]


BASE = Variant("base", output_alone=False)
EXACT = Variant("exact: norms without unused output")
MIXED = Variant("mixed", "mixed")
GROUPS = {
    "states": Group(
        10,
        False,
        (
            BASE,
            MIXED,
            EXACT,
            Variant("mixed, Triton products", "mixed", options=TRITON),
            Variant("exact, cuBLASLt", options={"xla_gpu_enable_cublaslt": True}),
            Variant("mixed, cuBLASLt", "mixed", options={"xla_gpu_enable_cublaslt": True}),
            Variant("exact, no split-K", options={"xla_gpu_experimental_force_split_k": 1}),
            Variant("exact, captured commands not updated",
                    options={"xla_gpu_command_buffer_update_mode": "CAPTURE_CMD_NEVER_UPDATE"}),
        ),
    ),
    "pixels": Group(
        5,
        True,
        (
            BASE,
            Variant("mixed", "mixed"),
            Variant("float32, packed images", pack_float32=True),
            Variant("mixed, fused activations", "mixed", options={"xla_gpu_use_runtime_fusion": True}),
        ),
    ),
    "one": Group(1, False, (BASE, MIXED, EXACT, Variant("mixed, Triton products", "mixed", options=TRITON))),
    "cpu": Group(
        1,
        False,
        (
            Variant("base"),
            Variant("vectors of 512 bits", options=WIDE),
            Variant("YNNPACK for products alone", options=PRODUCTS),
            Variant("both", options=WIDE | PRODUCTS),
        ),
    ),
}  # fmt: skip


@dataclasses.dataclass
class Arguments:
    """What to measure."""

    out: Path
    """JSON file of the figures; written anew after each round."""
    groups: tuple[str, ...] = ("states", "pixels", "one")
    """Of `states` (ten seeds), `pixels` (five), `one` and `cpu` (one seed from states)."""
    rounds: int = 7
    """Times that each variant is measured, alternating with the others."""
    updates: int = 50
    """Encoder updates, and critic + actor updates, in each."""
    preset: str = "dr.q"
    """Whose networks and batch."""
    profile: bool = False
    """Whether to list the kernels of the second variant of each group, next to the file."""
    seconds: float = 500
    """No further group or round is begun after these."""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    start = time.monotonic()
    unknown = set(arguments.groups) - set(GROUPS)
    if unknown:
        print(f"variants.py: no group {', '.join(sorted(unknown))}; groups: {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    for name in arguments.groups:
        if time.monotonic() - start < arguments.seconds:
            found[name] = {}
            measure(name, GROUPS[name], arguments, found, start)
    return 0


def measure(name: str, group: Group, arguments: Arguments, found: dict[str, Any], start: float) -> None:
    """Prepare the variants of a group, then measure them alternating."""
    figures = found[name]

    def write() -> None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")

    prepared = prepare(group, arguments, figures)
    write()
    for round_ in range(arguments.rounds):
        for variant, learner in list(prepared.items()):
            if time.monotonic() - start > arguments.seconds:
                break
            try:
                encoder, rl = timed(learner, arguments.updates)
            except Exception as error:  # one that fails must not end the others
                figures[variant]["error"] = shortened(error)
                del prepared[variant]
                continue
            figures[variant]["encoder_ms_each"].append(round(encoder, 4))
            figures[variant]["rl_ms_each"].append(round(rl, 4))
        summarise(figures)
        write()
        if round_ == 0 or round_ == arguments.rounds - 1:
            print_table(name, figures)
    if arguments.profile and len(prepared) > 1:
        try:
            profile(name, list(prepared.items())[1], arguments)
        except Exception:
            traceback.print_exc()


def prepare(group: Group, arguments: Arguments, figures: dict[str, Any]) -> dict[str, Any]:
    """Learners with compiled programs and the same transitions; traced one by one, compiled side by side."""
    from dr_q.learner.programs import GPU_OPTIONS

    learners: dict[str, Any] = {}
    filled = None
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        jobs: dict[str, list[Any]] = {}
        for variant in group.variants:
            figures[variant.name] = {"encoder_ms_each": [], "rl_ms_each": []}
            try:
                learner, filled = make(group, variant, arguments, filled)
                options = {**(GPU_OPTIONS if is_gpu() else {}), **variant.options} or None
                jobs[variant.name] = []
                for step in (learner._programs.sync_targets_and_train_encoder, learner._programs.update):
                    lowered = step.lower(learner._donated, learner._roots, learner._numbers[0])
                    jobs[variant.name].append((step, threads.submit(compiled, lowered, options)))
                learners[variant.name] = learner
            except Exception as error:
                traceback.print_exc()
                figures[variant.name]["error"] = shortened(error)
        for variant, steps in jobs.items():
            try:
                for step, job in steps:
                    program, seconds = job.result()
                    figures[variant].setdefault("compile_s_each", []).append(round(seconds, 1))
                    step.use(program)
                seen = learners[variant].sync_targets_and_train_encoder(0)
                figures[variant]["encoder_loss"] = float(seen.loss.mean())
                figures[variant]["critic_loss"] = float(learners[variant].update(0)[:, 0].mean())
                print(f"{variant}: compiled in {figures[variant]['compile_s_each']} s", file=sys.stderr, flush=True)
            except Exception as error:
                traceback.print_exc()
                figures[variant]["error"] = shortened(error)
                learners.pop(variant, None)
    return learners


def compiled(lowered: Any, options: dict[str, Any] | None) -> tuple[Any, float]:
    start = time.perf_counter()
    return lowered.compile(options), time.perf_counter() - start


def is_gpu() -> bool:
    import jax

    return jax.default_backend() == "gpu"


def make(group: Group, variant: Variant, arguments: Arguments, filled: Any) -> tuple[Any, Any]:
    """A learner of a variant, and the states that all of the group begin with."""
    import jax
    import jax.numpy as jnp

    from dr_q.config import preset
    from dr_q.learner import Learner, LearnerSpec, PendingTransition
    from dr_q.learner.programs import programs_for
    from dr_q.networks import norm, packed_convolutions
    from dr_q.spaces import ContinuousActions, ObsSpec, Spaces

    norm.OUTPUT_ALONE, packed_convolutions.PACK_FLOAT32 = variant.output_alone, variant.pack_float32
    programs_for.cache_clear()  # variants differ in more than their specs
    jax.clear_caches()
    config = preset(arguments.preset, target_period=arguments.updates, compute=variant.compute)
    obs = ObsSpec.image(3, 84, 84, stack=3) if group.pixels else ObsSpec.vector(17)
    unit = (1.0,) * 6
    spaces = Spaces(obs, ContinuousActions(tuple(-x for x in unit), unit))
    # Of pixels more than 4 GiB on a GPU, as a run has: offsets into it need 64 bits.
    capacity = (50_000 if is_gpu() else 600) if group.pixels else 20_000
    spec = LearnerSpec(config, spaces, capacity)
    learner = Learner(spec, list(range(group.seeds)))
    if filled is None:
        filled = fill(spec, group.seeds, 2_000 if is_gpu() else 600)
    frame = {name: jnp.zeros((group.seeds, *part.frame_shape), part.dtype) for name, part in obs.parts}
    learner.restore(jax.tree.map(jnp.copy, filled), PendingTransition(frame, jnp.zeros((group.seeds, 6))))
    return learner, filled


def fill(spec: Any, seeds: int, steps: int) -> Any:
    """States with random transitions in their replays."""
    import jax
    import jax.numpy as jnp

    from dr_q import replay as rp
    from dr_q.learner import init_states, root_keys

    def frames(key: Any) -> dict[str, Any]:
        found = {}
        for name, part in spec.spaces.obs.parts:
            if part.dtype == jnp.uint8:
                found[name] = jax.random.randint(key, part.frame_shape, 0, 256).astype(jnp.uint8)
            else:
                found[name] = jax.random.normal(key, part.frame_shape)
        return found

    def one(replay: Any, root: Any) -> Any:
        def add(replay: Any, step: Any) -> tuple[Any, None]:
            keys = jax.random.split(jax.random.fold_in(root, step), 4)
            action = jax.random.uniform(keys[2], (spec.spaces.action.dim,), minval=-1, maxval=1)
            reward, ends = jax.random.uniform(keys[3]), step % 500 == 499
            transition = rp.Transition(frames(keys[0]), action, reward, frames(keys[1]), jnp.zeros((), bool), ends)
            return rp.add(replay, transition), None

        return jax.lax.scan(add, replay, jnp.arange(steps))[0]

    roots = root_keys(range(seeds))
    states = jax.jit(init_states, static_argnums=0)(spec, roots)
    return states._replace(replays=jax.jit(jax.vmap(one), donate_argnums=0)(states.replays, roots))


def timed(learner: Any, updates: int) -> tuple[float, float]:
    """Milliseconds of an encoder update and of a critic + actor update."""

    def milliseconds(call: Any, count: int) -> float:
        learner.wait()
        start = time.perf_counter()
        call()
        learner.wait()
        return 1000 * (time.perf_counter() - start) / count

    def rl_updates() -> None:
        for _ in range(updates):
            learner.update(0)

    return milliseconds(lambda: learner.sync_targets_and_train_encoder(0), updates), milliseconds(rl_updates, updates)


def summarise(figures: dict[str, Any]) -> None:
    base = figures[next(iter(figures))]
    for one in figures.values():
        for what in ("encoder", "rl"):
            if one[f"{what}_ms_each"]:
                one[f"{what}_ms"] = statistics.median(one[f"{what}_ms_each"])
        if "encoder_ms" in one and "encoder_ms" in base:
            one["step_ratio"] = round((base["encoder_ms"] + base["rl_ms"]) / (one["encoder_ms"] + one["rl_ms"]), 3)
        for what in ("encoder_loss", "critic_loss"):
            if what in one and what in base:
                one[f"{what}_off"] = abs(one[what] - base[what]) / max(abs(base[what]), 1e-9)


def print_table(name: str, figures: dict[str, Any]) -> None:
    print(f"\n{name:42} encoder ms  RL ms   ratio  loss off (encoder, critic)  compile s", flush=True)
    for variant, one in figures.items():
        if "error" in one or "encoder_ms" not in one:
            print(f"{variant:42} FAILED: {one.get('error', 'not measured')[:150]}", flush=True)
            continue
        print(
            f"{variant:42} {one['encoder_ms']:9.3f} {one['rl_ms']:7.3f} {one['step_ratio']:7.3f}  "
            f"{one.get('encoder_loss_off', -1):.1e} {one.get('critic_loss_off', -1):.1e}  {one.get('compile_s_each')}",
            flush=True,
        )


def profile(name: str, of: tuple[str, Any], arguments: Arguments) -> None:
    """The kernels of a variant, as `kernels.py` lists them."""
    import kernels

    variant, learner = of

    def updates() -> None:
        for _ in range(arguments.updates):
            learner.update(0)

    for what, call in (("encoder", lambda: learner.sync_targets_and_train_encoder(0)), ("rl_update", updates)):
        seen, seconds = kernels.profile(call, learner.wait)
        kernels.write(seen, arguments.updates, arguments.out.with_name(f"{name}-mixed-{what}.csv"))
        kernels.print_kinds(f"{name}, {variant}, {what}", seen, arguments.updates, 1000 * seconds / arguments.updates)


def shortened(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"


if __name__ == "__main__":
    sys.exit(main())
