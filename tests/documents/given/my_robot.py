"""Write my_robot.py, the environment of docs/environments.md, into this folder, with a stronger robot besides."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "environments.md"

if __name__ == "__main__":
    found = re.search(r"```python\n(# my_robot\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, "the page has no my_robot.py"
    stronger = 'gymnasium.register("StrongReach-v0", Reach, max_episode_steps=100)\n'
    Path("my_robot.py").write_text(found[1] + stronger)
