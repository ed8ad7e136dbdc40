"""Write mine.toml, the presets of docs/sweeps.md, into this folder."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sweeps.md"

if __name__ == "__main__":
    found = re.search(r"```toml\n(# mine\.toml\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, "the page has no mine.toml"
    Path("mine.toml").write_text(found[1])
