"""The environments in examples/ are what their pages say."""

from pathlib import Path

import numpy as np
import pytest

from dr_q.envs import make_env
from dr_q.spaces import Image, Vector

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_camera_and_joints_has_an_image_beside_a_vector(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    both, joints = (make_env(f"camera_and_joints:{name}-v0") for name in ("ReacherEasy", "ReacherEasyJoints"))
    parts = dict(both.spec.obs.parts)
    assert (parts["camera"], parts["joints"]) == (Image(3, 84, 84, 3), Vector(4))
    first, again, other = (both.reset(seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first["camera"], again["camera"])
    assert (first["camera"] != other["camera"]).any()
    np.testing.assert_array_equal(joints.reset(3)["obs"], first["joints"])
    step = both.step(np.ones(2, np.float32))
    assert step.obs["joints"] != pytest.approx(first["joints"])
    both.close()
    joints.close()
