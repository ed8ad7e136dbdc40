"""On which devices the seeds are."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

_AXIS = "seeds"
Device = Any
"""A jax device; its class is not typed."""


class Placement:
    """On which devices the seeds are: equal shares of them, in order."""

    def __init__(self, seeds: int, devices: Sequence[Device] | None = None):
        """The most devices that can have equal shares; by default of all of the default platform."""
        devices = jax.devices() if devices is None else devices
        count = max(n for n in range(1, len(devices) + 1) if seeds % n == 0)
        self.devices = tuple(devices[:count])
        if count == 1:
            self._mesh = None
            self._sharding: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(self.devices[0])
        else:
            self._mesh = jax.sharding.Mesh(np.asarray(self.devices), (_AXIS,))
            self._sharding = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec(_AXIS))

    def put(self, tree: Any) -> Any:
        """Arrays with a leading axis of seeds, on their devices."""
        return jax.device_put(tree, self._sharding)

    def put_step(self, array: np.ndarray) -> Any:
        """The same for what goes to a compiled program at every step: to one device, the program sends it faster."""
        return array if self._mesh is None else self.put(array)

    def spread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function on each device for its own seeds; nothing passes between devices."""
        if self._mesh is None:
            return function
        by_seed = jax.sharding.PartitionSpec(_AXIS)
        return jax.shard_map(function, mesh=self._mesh, in_specs=by_seed, out_specs=by_seed, check_vma=False)

    def shapes(self, tree: Any) -> Any:
        """What arrays placed so look like, to compile for."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._sharding), tree)
