"""Write requirements-dev.txt: the versions of constraints.txt and of what builds the package, with the SHA-256 of every
file that the public index has of them, for all platforms. Write uv.txt, with the same of the newest uv, which installs
them in CI. Run by `make lock`."""

import concurrent.futures
import json
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).parents[1]
BUILD = ("editables", "hatchling", "pathspec", "setuptools", "tomlkit", "trove-classifiers")
"""What an editable installation without build isolation needs besides; setuptools is dm-control's, at run time."""


def index(name: str) -> dict:
    """What the public index says of a package."""
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/json", timeout=60) as answer:
        return json.load(answer)


def entry(pin: tuple[str, str | None]) -> str:
    """A package with its version, by default the newest, and the hashes of all its files."""
    name, version = pin
    record = index(name)
    version = version or record["info"]["version"]
    files = [file for file in record["releases"].get(version, []) if not file["yanked"]]
    if not files:
        sys.exit(f"{name} {version} has no files in the index")
    hashes = sorted({f"--hash=sha256:{file['digests']['sha256']}" for file in files})
    return " \\\n    ".join([f"{name}=={version}", *hashes])


def main() -> None:
    """Write the file."""
    lines = (HERE / "constraints.txt").read_text().split()
    pins: list[tuple[str, str | None]] = [tuple(line.split("==", 1)) for line in lines]  # pyright: ignore
    known = {name.lower() for name, _ in pins}
    pins += [(name, None) for name in BUILD if name not in known]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        entries = list(threads.map(entry, sorted(pins, key=lambda pin: pin[0].lower())))
    head = "# Made by `make lock` from constraints.txt; installed by `make setup` (pip install --require-hashes).\n"
    (HERE / "requirements-dev.txt").write_text(head + "\n".join(entries) + "\n")
    (HERE / ".ci" / "uv.txt").write_text(f"# Made by `make lock`; installs the rest in CI.\n{entry(('uv', None))}\n")


if __name__ == "__main__":
    main()
