"""A control loop with a policy exported by `dr-q export RUN --format numpy` (or torch). It needs no dr-q and no JAX.

python python_loop.py EXPORTED_FOLDER [STEPS] [HERTZ]
"""

import sys
import time

import gymnasium

folder, steps, hertz = sys.argv[1], int((sys.argv[2:] or [200])[0]), float((sys.argv[3:] or [20])[0])
sys.path.insert(0, folder)
from policy import Policy  # noqa: E402  # pyright: ignore[reportMissingImports] - policy.py of the export

policy = Policy()
robot = gymnasium.make("Pendulum-v1")  # put the driver of your robot here
obs, _ = robot.reset(seed=0)  # read its sensors: what the policy observed in training
policy.reset()
total, late, due = 0.0, 0, time.monotonic()
for _ in range(steps):
    action = policy.act(obs)  # in the robot's own units, inside its bounds
    due += 1 / hertz
    late += time.monotonic() > due
    time.sleep(max(0.0, due - time.monotonic()))
    obs, reward, *_ = robot.step(action)  # send the action, read the sensors again
    total += float(reward)
print(f"{steps} steps, return {total:.1f}, {late} actions later than {1000 / hertz:.0f} ms")
