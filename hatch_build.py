"""README as the package's description: its relative links and images become addresses of the repository.

The address is `repository` in pyproject.toml (`tool.hatch.metadata.hooks.custom`), or DR_Q_REPOSITORY. Without one the
links stay relative.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
_IMAGE = re.compile(r'(<img src=")(?![a-z]+:)([^"]+)(")')


class CustomMetadataHook(MetadataHookInterface):
    """What hatchling calls."""

    def update(self, metadata: dict) -> None:
        """Set the description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("DR_Q_REPOSITORY") or self.config.get("repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, repository)}


def described(text: str, repository: str) -> str:
    """README's text with addresses in place of relative paths."""
    text = re.sub(r"<!-- .*? -->\n", "", text)  # marks for our own scripts
    if not repository:
        return text

    def address(path: str, image: bool) -> str:
        return f"{repository.rstrip('/')}/{'raw' if image else 'blob'}/main/{path}"

    text = _LINK.sub(lambda found: f"{found[1]}[{found[2]}]({address(found[3], bool(found[1]))})", text)
    return _IMAGE.sub(lambda found: found[1] + address(found[2], True) + found[3], text)
