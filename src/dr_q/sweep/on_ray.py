"""Jobs on Ray: the cluster at an address, or one on this machine that nothing outside it can reach."""

import contextlib
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from dr_q.envs import cores
from dr_q.kit import ConfigError, MissingPackageError
from dr_q.sweep.job import Ended, Share, run_job
from dr_q.sweep.spec import Job, SweepOptions

_OBJECT_STORE = 80 * 2**20
"""Bytes. Jobs hand nothing over but how they ended; Ray takes no less."""
_KNOCK = 10.0
"""Seconds to wait for an answer at a cluster's address."""
OWN_NODE = "Ray's process on this machine died"
_LOOPBACK = "127.0.0.1"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


def need_ray() -> None:
    """Raise an error if Ray is not installed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "a sweep needs ray, which is not installed: pip install 'dr-q[ray]', or run it without: --local"
        ) from error


@contextlib.contextmanager
def cluster(options: SweepOptions) -> Iterator[bool]:
    """A cluster: the caller's if it has one, the one at the address, or one on this machine for as long as it takes.

    The value says whether it is the last of these, which is ours to start again.
    """
    import ray

    if ray.is_initialized():
        yield False
        return
    if options.address is None:
        start_on_this_machine()
    else:
        try:
            _knock(options.address)
            _use_token()
            ray.init(options.address, **_QUIET)
        except (OSError, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(
                f"no Ray cluster at '{options.address}' ({said}); start one: ray start --head --disable-usage-stats, "
                "or leave --address out"
            ) from None
    try:
        yield options.address is None
    finally:
        ray.shutdown()


def start_on_this_machine() -> None:
    """Start Ray; each of its processes listens on the loopback address only.

    Ray replaces a loopback address by one that others can reach, except where it has been told that there are no
    clusters, as it is by default on macOS (`RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER`). Its processes then bind to the address
    of their node.
    """
    import ray
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with warnings.catch_warnings():
            # A caller may have loaded jax, which warns of every fork; Ray's processes exec at once, so no lock is met.
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
            ray.init(
                "local",
                num_cpus=cores(),
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE,
                _node_ip_address=_LOOPBACK,
                **_QUIET,
            )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _use_token() -> None:
    """Give a cluster the token of this machine or environment, if there is one and the user has not chosen.

    `ray start --head` asks for a token as soon as there is one, which every local Ray leaves in the home directory;
    `ray.init` with an address gives none by itself. A cluster without tokens does not mind.
    """
    with contextlib.suppress(ImportError):  # earlier versions of Ray have no tokens
        from ray._private.authentication import authentication_token_setup as setup

        setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _knock(address: str) -> None:
    """Raise OSError where nothing listens: Ray would end this process."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=_KNOCK).close()


def nodes() -> list[dict[str, float]]:
    """What each node has."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]


def _dead_nodes() -> set[str]:
    import ray

    return {node["NodeID"] for node in ray.nodes() if not node["Alive"]}


class RayJobs:
    """Starts jobs on the cluster, each in a fresh process, and says how they ended."""

    def __init__(self, share: Share, *, ours: bool):
        """`ours`: whether the cluster is ours to start again."""
        self._share, self._ours = share, ours
        self._references: dict[Any, str] = {}
        self._dead: dict[str, set[str]] = {}
        """By attempt, the nodes that were dead when it was submitted."""
        self._remote: Any = None
        self._prepare()

    def _prepare(self) -> None:
        import ray

        # What becomes of a lost job is decided by the driver.
        cpus, gpus = self._share.cpus, self._share.gpus
        self._remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, max_calls=1)(run_job)

    def submit(self, job: Job, attempt: str) -> str:
        """Let it be started as soon as there is room; its key is the attempt."""
        self._dead[attempt] = _dead_nodes()
        self._references[self._remote.remote(job, self._share, attempt)] = attempt
        return attempt

    def ended(self, timeout: float) -> list[tuple[str, Ended]]:
        """Those that have ended, at the latest after so many seconds."""
        import ray

        ready, _ = ray.wait(list(self._references), num_returns=1, timeout=timeout)
        found = []
        for reference in ready:
            attempt, ended = self._references.pop(reference), _how(reference)
            if ended.status == "lost" and _dead_nodes() - self._dead[attempt]:
                ended = Ended("node lost", "a node died")
            found.append((attempt, ended))
        return found

    def stop(self) -> None:
        """Ask for checkpoints: a running job takes it as it takes Ctrl-C, a waiting one is not started."""
        import ray

        for reference in self._references:
            ray.cancel(reference, force=False)

    def restart(self, say: Callable[[str], None]) -> bool:
        """Start Ray again where this machine's node has died; False if it is not ours to start."""
        import ray

        if not self._ours:
            return False
        self._references.clear()
        ray.shutdown()
        say(f"{OWN_NODE}; it is started again")
        start_on_this_machine()
        self._prepare()
        return True

    def close(self) -> None:
        """Nothing: the cluster ends what is left."""


def _how(reference: Any) -> Ended:
    """How a job ended, or that it was lost."""
    import ray
    from ray.exceptions import (
        LocalRayletDiedError,
        NodeDiedError,
        RayError,
        RayTaskError,
        TaskCancelledError,
    )

    try:
        return ray.get(reference)
    except TaskCancelledError:
        return Ended("interrupted")
    except RayTaskError as error:  # before the job could catch it: a node without dr-q, say
        return Ended("failed", " ".join(str(error.cause or error).split()))
    except LocalRayletDiedError:
        return Ended("node lost", OWN_NODE)
    except NodeDiedError:
        return Ended("node lost", "a node died")
    except RayError as error:
        return Ended("lost", type(error).__name__)
