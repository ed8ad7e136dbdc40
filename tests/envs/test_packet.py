"""How the outcome of a step lies in bytes, for one part and for several."""

import numpy as np
import pytest

from dr_q.envs import Env, EnvSpec, PacketLayout, ProcessPool, Source, Step, Transitions
from dr_q.envs.processes.packet import PacketPart
from dr_q.envs.processes.pool import InProcessPool
from dr_q.spaces import ContinuousActions, Image, ObsSpec, Spaces, Vector

MIXED = ObsSpec((("camera", Image(1, 3, 5, stack=2)), ("state", Vector(3)), ("goal", Image(1, 1, 1))))


def random_obs(spec: ObsSpec, seed: int, *leading: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (255 * rng.random((*leading, *part.shape))).astype(part.dtype) for name, part in spec.parts}


@pytest.mark.parametrize("spec", [ObsSpec.vector(5), ObsSpec.image(3, 7, 7, 1), ObsSpec.image(1, 3, 3, 3), MIXED])
def test_packing_and_unpacking(spec):
    layout = PacketLayout(spec)
    next_obs, obs = random_obs(spec, 0, 4), random_obs(spec, 1, 4)
    numbers = np.array([[1.5, 0, 1], [-2, 1, 0], [0, 0, 0], [3, 1, 1]])
    packed = Transitions.of(layout, next_obs, obs, numbers)
    assert packed.packet.shape == (4, layout.size)
    for name, part in spec.parts:
        np.testing.assert_array_equal(packed.next_obs[name], next_obs[name])
        np.testing.assert_array_equal(packed.obs[name], obs[name])
        assert packed.obs[name].dtype == part.dtype
        assert np.shares_memory(packed.obs[name], packed.packet)
    np.testing.assert_array_equal(packed.numbers, numbers)
    np.testing.assert_array_equal(packed.reward, numbers[:, 0])
    np.testing.assert_array_equal(packed.terminated, numbers[:, 1] > 0)
    np.testing.assert_array_equal(packed.truncated, numbers[:, 2] > 0)


@pytest.mark.parametrize("spec", [ObsSpec.vector(5), ObsSpec.image(3, 7, 7, 1)])
def test_one_part_is_three_numbers_then_both_observations_then_zeros_to_a_whole_number(spec):
    """Checkpoints and compiled programs rely on these bytes."""
    (name, part) = spec.parts[0]
    next_obs, obs = random_obs(spec, 0, 1), random_obs(spec, 1, 1)
    packet = Transitions.of(PacketLayout(spec), next_obs, obs, np.array([[1.0, 0.0, 1.0]])).packet
    plain = np.array([1, 0, 1], np.float32).tobytes() + next_obs[name].tobytes() + obs[name].tobytes()
    assert packet.tobytes() == plain + bytes(-len(plain) % 4)
    assert PacketLayout(spec).parts == (PacketPart(name, 12, 2 * next_obs[name].nbytes, part.shape, part.dtype),)


def test_every_part_begins_at_a_multiple_of_four_bytes():
    parts = PacketLayout(MIXED).parts
    assert [(part.name, part.offset, part.nbytes) for part in parts] == [
        ("camera", 12, 60),
        ("state", 72, 24),
        ("goal", 96, 2),
    ]
    assert PacketLayout(MIXED).size == 100
    assert hash(PacketLayout(MIXED)) == hash(PacketLayout(ObsSpec(MIXED.parts)))


class Mixed:
    """Counts its steps in every part of its observations."""

    spec = EnvSpec(Spaces(MIXED, ContinuousActions((-1.0,), (1.0,))))

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        self._count = seed % 50
        return self._observe()

    def step(self, action: np.ndarray) -> Step:
        self._count += 1
        return Step(self._observe(), float(action[0]), False, self._count % 7 == 0)

    def render(self, size: tuple[int, int]) -> np.ndarray:
        return np.zeros((*size, 3), np.uint8)

    def close(self) -> None:
        pass

    def _observe(self) -> dict[str, np.ndarray]:
        return {name: np.full(part.shape, self._count + i, part.dtype) for i, (name, part) in enumerate(MIXED.parts)}


class MixedSource(Source):
    def make(self) -> Env:
        return Mixed()


def test_pools_pass_observations_of_several_parts():
    """As long as no environment gives them, through one of its own."""
    seen = []
    for kind in (InProcessPool, ProcessPool):
        pool = kind(MixedSource("several parts"), [3, 4], 2)
        try:
            found = [pool.begin()]
            for i in range(12):
                pool.send(np.full((2, 1), i / 20, np.float32))
                arrived = pool.receive()
                found += [arrived.next_obs, arrived.obs, {"numbers": arrived.numbers}]
            found.append(pool.evaluate_begin(np.array([[1, 2], [3, 4]])))
            found.append(pool.evaluate_step(np.zeros((2, 2, 1), np.float32))[0])
            found.append(pool.restore(pool.open_episodes()))
            found.append(pool.restart(1, 3))
        finally:
            pool.close()
        seen.append(found)
    assert set(seen[0][0]) == {"camera", "state", "goal"}
    assert seen[0][-2]["camera"].shape == (2, 2, 3, 5)
    assert seen[0][-3]["camera"].shape == (2, 2, 2, 3, 5)
    np.testing.assert_array_equal(seen[0][-3]["goal"][:, :, 0, 0, 0], [[4, 5], [6, 7]])
    for here, there in zip(*seen, strict=True):
        assert list(here) == list(there)
        for name in here:
            np.testing.assert_array_equal(here[name], there[name])
