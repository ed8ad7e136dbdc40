"""Which kernels an encoder update and a critic + actor update consist of, and what each takes.

    python benchmarks/kernels.py --out kernels                                  # on a GPU: ten seeds, from states
    python benchmarks/kernels.py --out kernels --pixels --seeds 5               # from pixels

The programs are those of training; the replay holds random transitions, so no simulator is needed. Writes
`encoder.csv` and `rl_update.csv` (kernel, its kind, how often in an update, microseconds of all of them), prints the
kinds. Kernels side by side are each counted whole: their sum may exceed the time of an update.
"""

import collections
import csv
import dataclasses
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from dr_q.learner import Learner

KINDS = {
    "convert": ("convert",),
    "convolution": ("conv", "cudnn", "fprop", "dgrad", "wgrad", "fft", "nhwcaddpadding"),
    "product": ("gemm", "cutlass", "xmma", "nvjet", "ynn", "dot"),
    "copy": ("memcpy", "copy", "transpose"),
}
"""By what a kernel's name has in it, the first that fits; every other is a kind of its own, by how its name begins.

Convolutions come before products: many of them are called that, too (`fprop_implicit_gemm`)."""


@dataclasses.dataclass
class Arguments:
    """What to profile."""

    out: Path
    """Folder of the CSV files."""
    seeds: int = 10
    """Seeds at once."""
    obs: int = 17
    """Numbers in an observation; cheetah-run's are 17."""
    actions: int = 6
    """Numbers in an action."""
    pixels: bool = False
    """Observe three images of 84 x 84 instead."""
    preset: str = "dr.q"
    """Whose networks and batch."""
    capacity: int = 100_000
    """Slots of each seed's replay."""
    updates: int = 20
    """Encoder updates, and critic + actor updates, to look at."""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    warnings.filterwarnings("ignore", "builtin type event_stats")  # jax's profiler, on Python 3.12
    import jax

    from dr_q.kit import ConfigError

    try:
        for name in ("seeds", "obs", "actions", "updates"):
            if getattr(arguments, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(arguments, name)}")
        seeds = ready(arguments)
    except ConfigError as error:
        print(f"kernels.py: {error}", file=sys.stderr)
        return 2

    def updates() -> None:
        for _ in range(arguments.updates):
            seeds.update(0)

    device = jax.devices()[0]
    Console().print(f"{device.device_kind}, jax {jax.__version__}, {arguments.seeds} seeds, {arguments.preset}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, call in (("encoder", lambda: seeds.sync_targets_and_train_encoder(0)), ("rl_update", updates)):
        kernels, seconds = profile(call, seeds.wait)
        if not kernels:
            print(f"kernels.py: the profiler saw no kernel on {device.device_kind}", file=sys.stderr)
            return 1
        write(kernels, arguments.updates, arguments.out / f"{name}.csv")
        print_kinds(name, kernels, arguments.updates, 1000 * seconds / arguments.updates)
    return 0


def ready(arguments: Arguments) -> "Learner":
    """Seeds with compiled programs and some transitions to draw from."""
    import numpy as np

    from dr_q.config import preset
    from dr_q.envs import PacketLayout, Transitions
    from dr_q.learner import Learner, LearnerSpec
    from dr_q.spaces import SINGLE, ContinuousActions, ObsSpec, Spaces

    config = preset(arguments.preset, target_period=arguments.updates)
    obs = ObsSpec.image(3, 84, 84, stack=3) if arguments.pixels else ObsSpec.vector(arguments.obs)
    unit = (1.0,) * arguments.actions
    spaces = Spaces(obs, ContinuousActions(tuple(-x for x in unit), unit))
    layout, random = PacketLayout(obs), np.random.default_rng(0)

    def observations() -> dict[str, Any]:
        size = (arguments.seeds, *obs[SINGLE].shape)
        values = random.integers(0, 256, size) if arguments.pixels else random.normal(size=size)
        return {SINGLE: values.astype(obs[SINGLE].dtype)}

    def outcome(step: int) -> Transitions:
        ends = np.full(arguments.seeds, step % 500 == 499)
        rewards = np.stack([random.random(arguments.seeds), np.zeros(arguments.seeds), ends], 1)
        return Transitions.of(layout, observations(), observations(), rewards.astype(np.float32))

    seeds = Learner(LearnerSpec(config, spaces, arguments.capacity), list(range(arguments.seeds)))
    seeds.begin(observations())
    print("compiling", file=sys.stderr, flush=True)
    seeds.compile()
    for step in range(2 * config.batch_size):
        seeds.act_randomly(outcome(step))
        seeds.actions()
        seeds.add()
    return seeds


def profile(call: Callable[[], object], wait: Callable[[], None]) -> tuple[dict[str, tuple[int, float]], float]:
    """Each kernel's number and nanoseconds in one call, and the call's seconds when nobody looks."""
    import jax
    from jax.profiler import ProfileData

    call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    seconds = time.perf_counter() - start
    count: collections.Counter[str] = collections.Counter()
    taken: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
            wait()
        (file,) = Path(folder).rglob("*.xplane.pb")
        for plane in ProfileData.from_file(str(file)).planes:
            for line in plane.lines:
                for event in line.events:
                    if is_kernel(plane.name, line.name, event):
                        count[event.name] += 1
                        taken[event.name] += event.duration_ns
    return {name: (count[name], taken[name]) for name in count}, seconds


def is_kernel(plane: str, line: str, event: Any) -> bool:
    if "GPU" in plane:
        return line.startswith("Stream")
    return plane.startswith("/host") and any(name == "hlo_op" for name, _ in event.stats)


def kind(name: str) -> str:
    lower = name.lower()
    for found, words in KINDS.items():
        if any(word in lower for word in words):
            return found
    return lower.split("_fusion")[0].split(".")[0].split("__")[0][:30]


def write(kernels: dict[str, tuple[int, float]], updates: int, path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["kernel", "kind", "times_per_update", "us_per_update"])
        for name, (count, taken) in sorted(kernels.items(), key=lambda item: -item[1][1]):
            rows.writerow([name, kind(name), f"{count / updates:g}", f"{taken / 1000 / updates:.3f}"])


def print_kinds(name: str, kernels: dict[str, tuple[int, float]], updates: int, milliseconds: float) -> None:
    kinds: dict[str, list[float]] = {}
    for kernel, (count, taken) in kernels.items():
        one = kinds.setdefault(kind(kernel), [0, 0.0])
        one[0] += count
        one[1] += taken
    whole = sum(taken for _, taken in kinds.values())
    table = Table(f"{name}: {milliseconds:.3f} ms", "in an update", "ms", "share", box=None, pad_edge=False)
    for found, (count, taken) in sorted(kinds.items(), key=lambda item: -item[1][1])[:12]:
        table.add_row(found, f"{count / updates:.1f}", f"{taken / 1e6 / updates:.3f}", f"{100 * taken / whole:.0f}%")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
