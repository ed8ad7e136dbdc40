"""A control loop with a policy exported by `dr-q export RUN --format onnx`. It needs no dr-q and no JAX.

python onnx_loop.py EXPORTED_FOLDER [STEPS] [HERTZ]
"""

import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime

folder, steps, hertz = Path(sys.argv[1]), int((sys.argv[2:] or [200])[0]), float((sys.argv[3:] or [20])[0])
session = onnxruntime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])
robot = gymnasium.make("Pendulum-v1")  # put the driver of your robot here
obs, _ = robot.reset(seed=0)  # read its sensors: what the policy observed in training
total, late, due = 0.0, 0, time.monotonic()
for _ in range(steps):
    feed = {
        "obs": np.asarray(obs, np.float32)[None]
    }  # a batch of one; of a Dict {name: x[None] for name, x in obs.items()}
    (actions,) = session.run(["action"], feed)
    due += 1 / hertz
    late += time.monotonic() > due
    time.sleep(max(0.0, due - time.monotonic()))
    obs, reward, *_ = robot.step(np.asarray(actions)[0])  # send the action, read the sensors again
    total += float(reward)
print(f"{steps} steps, return {total:.1f}, {late} actions later than {1000 / hertz:.0f} ms")
