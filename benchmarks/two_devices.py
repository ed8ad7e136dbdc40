"""Updates of the preset `quick` with each batch shared by two host devices, next to one device: is a laptop faster so?

    python benchmarks/two_devices.py            # each way in a process of its own, alternating

The replay and the networks are on both devices; each takes half of a batch, and XLA's partitioner adds what must pass
between them: sums of gradients, and all targets for InfoNCE. A device needs threads of its own: with fewer than four in
all, the collectives wait for each other for ever and XLA ends the process.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

WAYS = {
    "one device, all threads": {},
    "one device, one thread": {"NPROC": "1"},
    "two devices, four threads": {"NPROC": "4", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
}


def measure(rounds: int) -> dict[str, float]:
    """Milliseconds of an encoder update and of an RL update, here, on all devices that there are."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import dr_q
    import updates
    from dr_q import agent as drq
    from dr_q import replay as rp

    updates.OBS, updates.ACTIONS = 5, 1  # cartpole-swingup
    config = dr_q.preset("quick")
    state = (
        drq.init_agent(config, drq.init_networks(config, updates.spaces(), jax.random.key(0))),
        updates.filled_replay(20_000),
        jax.random.key(1),
    )
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec())

    def shared(sample: Any) -> Any:
        """The same samples, each device with its part of the batch."""

        def part(x: Any) -> Any:
            axes: list[str | None] = [None] * x.ndim
            axes[x.shape.index(config.batch_size)] = "batch"
            return jax.lax.with_sharding_constraint(x, NamedSharding(everywhere.mesh, PartitionSpec(*axes)))

        return jax.tree.map(part, sample)

    if len(jax.devices()) > 1:
        for name in ("sample_subtrajectory", "sample_n_step"):
            read = getattr(rp, name)
            setattr(rp, name, lambda *given, read=read: shared(read(*given)))
    agent, replay, key = jax.device_put(state, everywhere)
    sync = jax.jit(functools.partial(drq.sync_targets_and_train_encoder, config), out_shardings=everywhere)
    update = jax.jit(functools.partial(drq.update_actor_critic, config), out_shardings=everywhere)

    def encoder() -> float:
        start = time.perf_counter()
        jax.block_until_ready(sync(agent, replay, key))
        return (time.perf_counter() - start) / config.encoder_updates_per_sync

    def actor_critic() -> float:
        start, now = time.perf_counter(), (agent, replay)
        for _ in range(200):
            *now, _ = update(*now, key)
        jax.block_until_ready(now)
        return (time.perf_counter() - start) / 200

    for part in (encoder, actor_critic):
        part()  # compiles
    times = [(encoder(), actor_critic()) for _ in range(rounds)]
    return {
        name: 1000 * statistics.median(x) for name, x in zip(("encoder", "rl"), zip(*times, strict=True), strict=True)
    }


def main() -> None:
    """Measure each way, alternating."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", action="store_true", help="measure in this process and print JSON")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.rounds)))
        return
    for turn in range(options.turns):
        for name, environment in WAYS.items():
            command = [sys.executable, __file__, "--here", "--rounds", str(options.rounds)]
            done = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
            )
            found = json.loads(done.stdout) if done.returncode == 0 else None
            said = (
                f"exit code {done.returncode}"
                if found is None
                else ", ".join(f"{k} {x:.2f} ms" for k, x in found.items())
            )
            print(f"turn {turn + 1}, {name}: {said}", flush=True)


if __name__ == "__main__":
    main()
