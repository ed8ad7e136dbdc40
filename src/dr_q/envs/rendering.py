"""Which OpenGL backend MuJoCo renders with, where nobody has said; and where none works."""

import contextlib
import ctypes.util
import gc
import os
import sys
import warnings
from collections.abc import Iterator

_KNOWN = ("egl", "osmesa", "glfw", "glx", "", "on", "enable", "enabled", "true", "1")
_KNOWN += ("off", "disable", "disabled", "false", "0")
"""What MuJoCo takes on Linux."""


def choose_backend() -> None:
    """Set MUJOCO_GL where it is not set and there is no screen: EGL (also in software), else OSMesa, else none.

    MuJoCo and dm_control would take GLFW, which needs a screen, and fail at the first image. A value with which MuJoCo
    cannot even be imported is replaced by none, because most runs draw nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    if (given := os.environ.get("MUJOCO_GL")) is not None:
        name = given.lower().strip()
        if name not in _KNOWN or (name == "osmesa" and not ctypes.util.find_library("OSMesa")):
            os.environ["MUJOCO_GL"] = "disable"
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    for backend, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = backend
            return
    os.environ["MUJOCO_GL"] = "disable"


@contextlib.contextmanager
def quiet_destructors() -> Iterator[None]:
    """Hide what libraries print of a drawing context that they could not open: warnings, errors when it is freed."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.collect()
        sys.unraisablehook = before
