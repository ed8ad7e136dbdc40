"""What one update costs on this machine, and what the replay costs against its capacity.

    make bench                                # or: python benchmarks/updates.py
    make bench ARGS="--authors PATH"          # also the authors' agent, from a checkout at PATH; needs torch

Everything is timed in one process, in alternating rounds, so that the ratios survive a noisy machine.
"""

import dataclasses
import functools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.table import Table

from authors import NoLog, find_agent

if TYPE_CHECKING:
    from dr_q import replay as rp
    from dr_q.spaces import Spaces

OBS, ACTIONS, CAPACITY = 67, 21, 100_000
FILLED = 20_000
EPISODE = 500
CAPACITIES = (10_000, 100_000, 1_000_000)


@dataclasses.dataclass
class Arguments:
    """What to time."""

    authors: Path | None = None
    """A checkout of the authors' repository (dmksjfl/DR.Q): time their agent too."""
    threads: int = 2
    """CPU cores that either side may use."""
    rounds: int = 5
    """Rounds over everything; medians are reported."""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= arguments.threads <= len(cores):
        return refuse(f"--threads must be between 1 and {len(cores)}, this machine's cores; got {arguments.threads}")
    os.sched_setaffinity(0, cores[: arguments.threads])  # before jax is imported: XLA sizes its pool by it
    theirs: dict[str, Callable[[], float]] = {}
    if arguments.authors is not None:
        missing = find_agent(arguments.authors)
        if missing:
            return refuse(missing)
        try:
            theirs = authors_parts(arguments.threads)
        except ModuleNotFoundError as error:
            return refuse(f"the authors' agent needs {error.name}, which is not installed; pip install {error.name}")
    ours = our_parts()

    console = Console()
    import jax

    console.print(
        f"{platform.machine()}, {arguments.threads} threads, jax {jax.__version__} on {jax.default_backend()}; "
        f"observations {OBS}, actions {ACTIONS}, batch 256, buffer {CAPACITY:,}; "
        f"median of {arguments.rounds} rounds, milliseconds"
    )
    seconds: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for side, parts in (("ours", ours), ("theirs", theirs)):
            for name, measure in parts.items():
                seconds.setdefault(f"{side} {name}", []).append(measure())
    median = {name: 1000 * statistics.median(times) for name, times in seconds.items()}

    table = Table("part", "ours", *(["authors'", "ratio"] if theirs else []), box=None, pad_edge=False)
    sums = {side: sum(v for k, v in median.items() if k.startswith(side)) for side in ("ours", "theirs")}
    for name in ours:
        row = [name, f"{median[f'ours {name}']:.2f}"]
        if theirs:
            row += [f"{median[f'theirs {name}']:.2f}", f"{median[f'theirs {name}'] / median[f'ours {name}']:.2f}"]
        table.add_row(*row)
    row = ["environment step (all of the above)", f"{sums['ours']:.2f}"]
    if theirs:
        row += [f"{sums['theirs']:.2f}", f"{sums['theirs'] / sums['ours']:.2f}"]
    table.add_row(*row)
    console.print(table)

    costs = replay_costs(arguments.rounds)
    table = Table("replay capacity", "add + draw 256 + priority write", "against 10,000", box=None, pad_edge=False)
    for capacity, cost in costs.items():
        table.add_row(f"{capacity:,}", f"{1000 * cost:.3f}", f"{cost / costs[CAPACITIES[0]]:.2f}")
    console.print(table)
    return 0


def refuse(message: str) -> int:
    print(f"updates.py: {message}", file=sys.stderr)
    return 2


# Ours


def spaces() -> "Spaces":
    from dr_q.spaces import ContinuousActions, ObsSpec, Spaces

    return Spaces(ObsSpec.vector(OBS), ContinuousActions((-1.0,) * ACTIONS, (1.0,) * ACTIONS))


def filled_replay(capacity: int) -> "rp.Replay":
    import jax
    import jax.numpy as jnp

    from dr_q import replay as rp
    from dr_q.config import Config
    from dr_q.spaces import SINGLE

    def step(replay: rp.Replay, i: jax.Array) -> tuple[rp.Replay, None]:
        key_obs, key_action, key_reward = jax.random.split(jax.random.fold_in(jax.random.key(0), i), 3)
        obs = jax.random.normal(key_obs, (OBS,))
        transition = rp.Transition(
            obs={SINGLE: obs},
            action=jax.random.uniform(key_action, (ACTIONS,), minval=-1, maxval=1),
            reward=jax.random.uniform(key_reward),
            next_obs={SINGLE: obs},
            terminated=jnp.asarray(False),
            truncated=i % EPISODE == EPISODE - 1,
        )
        return rp.add(replay, transition), None

    count = min(capacity, FILLED)
    empty = rp.init_replay(Config(), spaces(), capacity)
    fill = jax.jit(lambda replay: jax.lax.scan(step, replay, jnp.arange(count))[0], donate_argnums=0)
    return jax.block_until_ready(fill(empty))


def our_parts() -> dict[str, Callable[[], float]]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dr_q import agent as drq
    from dr_q import replay as rp
    from dr_q.config import Config
    from dr_q.spaces import SINGLE

    updates = 10  # encoder updates run many to a dispatch in training too (250); fewer keep a round short
    config = Config(target_period=updates)
    state: dict[str, Any] = {
        "replay": filled_replay(CAPACITY),
        "agent": jax.jit(lambda key: drq.init_agent(config, drq.init_networks(config, spaces(), key)))(
            jax.random.key(0)
        ),
        "key": jax.random.key(1),
    }
    train_encoder = jax.jit(drq.sync_targets_and_train_encoder, static_argnums=0, donate_argnums=1)
    update = jax.jit(drq.update_actor_critic, static_argnums=0, donate_argnums=(1, 2))
    explore = jax.jit(drq.explore, static_argnums=0)
    add = jax.jit(rp.add, donate_argnums=0)
    rng = np.random.default_rng(0)

    def next_key() -> jax.Array:
        state["key"], key = jax.random.split(state["key"])
        return key

    def encoder() -> None:
        state["agent"], _ = train_encoder(config, state["agent"], state["replay"], next_key())

    def actor_critic() -> None:
        state["agent"], state["replay"], _ = update(config, state["agent"], state["replay"], next_key())

    def act() -> None:
        state["action"] = np.asarray(explore(config, state["agent"].online, {SINGLE: rng.normal(size=OBS)}, next_key()))

    def add_transition() -> None:
        obs = rng.normal(size=OBS).astype(np.float32)
        action = rng.uniform(-1, 1, ACTIONS).astype(np.float32)
        frame = {SINGLE: jnp.asarray(obs)}
        action, reward, no = (jnp.asarray(x) for x in (action, np.float32(0.5), False))
        state["replay"] = add(state["replay"], rp.Transition(frame, action, reward, frame, no, no))

    def wait() -> None:
        jax.block_until_ready((state["agent"], state["replay"]))

    return {
        "encoder update": timed(encoder, wait, calls=1, work=updates),
        "critic + actor update": timed(actor_critic, wait, calls=10),
        "action": timed(act, wait, calls=50),
        "add": timed(add_transition, wait, calls=50),
    }


def timed(call: Callable[[], None], wait: Callable[[], None], calls: int, work: int = 1) -> Callable[[], float]:
    """A function that gives the seconds of one piece of work, warmed up here."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
            wait()
        return (time.perf_counter() - start) / calls / work

    measure()
    return measure


def replay_costs(rounds: int) -> dict[int, float]:
    """Seconds for one add + draw of 256 + priority write, by capacity."""
    import jax
    import jax.numpy as jnp

    from dr_q import replay as rp
    from dr_q.spaces import SINGLE

    @functools.partial(jax.jit, donate_argnums=0)
    def step(replay: rp.Replay, transition: rp.Transition, key: jax.Array) -> rp.Replay:
        key_draw, key_priority = jax.random.split(key)
        replay = rp.add(replay, transition)
        slots = rp.draw(replay, key_draw, 256)
        return rp.write_priority(replay, slots, 1 + jax.random.uniform(key_priority, (256,)))

    no = jnp.asarray(False)
    transition = rp.Transition(
        {SINGLE: jnp.ones(OBS)}, jnp.ones(ACTIONS), jnp.ones(()), {SINGLE: jnp.ones(OBS)}, no, no
    )
    keys = jax.random.split(jax.random.key(0), 100)
    replays = {capacity: filled_replay(capacity) for capacity in CAPACITIES}
    seconds: dict[int, list[float]] = {capacity: [] for capacity in CAPACITIES}
    for turn in range(rounds + 1):  # the first only warms up
        for capacity in CAPACITIES:
            replay = replays[capacity]
            start = time.perf_counter()
            for key in keys:
                replay = jax.block_until_ready(step(replay, transition, key))
            if turn:
                seconds[capacity].append((time.perf_counter() - start) / len(keys))
            replays[capacity] = replay
    return {capacity: statistics.median(times) for capacity, times in seconds.items()}


# The authors'


def authors_parts(threads: int) -> dict[str, Callable[[], float]]:
    """The parts of their training step, their code unchanged but for the CUDA device their buffer names."""
    import types
    import warnings

    import numpy as np
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(threads)
    import buffer  # pyright: ignore[reportMissingImports]

    class TorchOnCpu(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        @staticmethod
        def device(*_: Any) -> Any:
            return torch.device("cpu")

    buffer.torch = TorchOnCpu("torch")
    import DRQ  # pyright: ignore[reportMissingImports]

    agent = DRQ.Agent((OBS,), ACTIONS, 1.0, False, False, torch.device("cpu"), 1, {"buffer_size": CAPACITY})
    rng = np.random.default_rng(0)

    def add(i: int = 0) -> None:
        obs = rng.normal(size=OBS).astype(np.float32)
        action = rng.uniform(-1, 1, ACTIONS).astype(np.float32)
        agent.replay_buffer.add(obs, action, obs, 0.5, 0, i % EPISODE == EPISODE - 1)

    for i in range(FILLED):
        add(i)

    def encoder() -> None:
        state, action, next_state, reward, not_done = agent.replay_buffer.sample(5, include_intermediate=True)
        agent.train_encoder(state, action, next_state, reward, not_done, False)

    def actor_critic() -> None:
        agent.training_steps = 1  # not a step that copies targets or writes a log
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they convert a tensor that requires a gradient
            agent.train(NoLog())

    def act() -> None:
        agent.select_action(rng.normal(size=OBS))

    def nothing() -> None:
        pass

    return {
        "encoder update": timed(encoder, nothing, calls=10),
        "critic + actor update": timed(actor_critic, nothing, calls=10),
        "action": timed(act, nothing, calls=50),
        "add": timed(add, nothing, calls=50),
    }


if __name__ == "__main__":
    sys.exit(main())
