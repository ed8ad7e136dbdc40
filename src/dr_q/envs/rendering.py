"""Which OpenGL backend MuJoCo renders with, where nobody has said."""

import ctypes.util
import os
import sys


def choose_backend() -> None:
    """Set MUJOCO_GL where it is not set and there is no screen: EGL (also in software), else OSMesa, else none.

    MuJoCo and dm_control would take GLFW, which needs a screen, and fail at the first image.
    """
    if "MUJOCO_GL" in os.environ or not sys.platform.startswith("linux"):
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    for backend, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = backend
            return
    os.environ["MUJOCO_GL"] = "disable"
