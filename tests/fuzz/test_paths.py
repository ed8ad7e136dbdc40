"""Paths that are not what a command needs, in every place where one is given: one line, and nothing left behind."""

import os
import shutil
import time
from pathlib import Path

import pytest

from dr_q.cli import COMMANDS, main
from dr_q.cli.options import options_of_command
from dr_q.config import base_kind
from dr_q.report import Result, write_results
from tests.fuzz.readers import AT_MOST
from tests.fuzz.test_options import SEARCH, commands

DATA = Path(__file__).parents[1] / "data"
PATH = "PATH"
"""Stands for the path in a command; `ours.csv`, `run` and `agent` are there and right."""
SHORT = ["--preset", "quick", "--steps", "10"]

INPUTS: dict[str, list[str]] = {
    "train --resume": ["train", "--resume", PATH],
    "train --init": ["train", "gym/Pendulum-v1", "--init", PATH, *SHORT],
    "train --prefill": ["train", "gym/Pendulum-v1", "--prefill", PATH, *SHORT],
    "train --preset-file": ["train", "gym/Pendulum-v1", "--preset-file", PATH, *SHORT],
    "sweep --preset-file": ["sweep", "gym/Pendulum-v1", "--preset-file", PATH],
    "sweep --slurm-header": ["sweep", "gym/Pendulum-v1", "--slurm", "array", "--slurm-header", PATH],
    "tune --preset-file": ["tune", "gym/Pendulum-v1", "--preset-file", PATH, *SEARCH],
    "watch": ["watch", PATH],
    "eval": ["eval", PATH],
    "video": ["video", PATH],
    "export": ["export", PATH, "--out", "new"],
    "import-authors": ["import-authors", PATH, "--task", "gym/Pendulum-v1"],
    "plot": ["plot", PATH],
    "plot --reference": ["plot", "ours.csv", "--reference", PATH],
    "analyse tsne": ["analyse", "tsne", PATH],
    "analyse priorities": ["analyse", "priorities", PATH],
    "analyse information": ["analyse", "information", PATH],
    "experiment run --preset-file": ["experiment", "run", "breadth", "--preset-file", PATH],
    "experiment run --have": ["experiment", "run", "breadth", "--missing", "--have", PATH],
    "results": ["results", PATH],
    "compare first": ["compare", PATH, "ours.csv"],
    "compare second": ["compare", "ours.csv", PATH],
    "compare --reference": ["compare", "ours.csv", "--reference", PATH],
    "report": ["report", PATH],
    "report --reference": ["report", "ours.csv", "--reference", PATH],
    "presets --preset-file": ["presets", "--preset-file", PATH],
    "doctor": ["doctor", PATH],
    "doctor --preset-file": ["doctor", "--preset-file", PATH],
    "check": ["check", PATH],
    "bench": ["bench", PATH, "--steps", "1"],
    "bench --preset-file": ["bench", "gym/Pendulum-v1", "--preset-file", PATH],
}
OUTPUTS: dict[str, list[str]] = {
    "train --out": ["train", "gym/Pendulum-v1", "--out", PATH, *SHORT],
    "sweep --out": ["sweep", "gym/Pendulum-v1", "--local", "--out", PATH],
    "sweep --slurm": ["sweep", "gym/Pendulum-v1", "--out", "new", "--slurm", PATH],
    "sweep --slurm-script": ["sweep", "gym/Pendulum-v1", "--out", "new", "--slurm", "array", "--slurm-script", PATH],
    "tune --out": ["tune", "gym/Pendulum-v1", *SEARCH, "--out", PATH],
    "video --out": ["video", "run", "--out", PATH],
    "export --out": ["export", "run", "--episodes", "0", "--out", PATH],
    "import-authors --out": ["import-authors", "agent", "--task", "gym/Pendulum-v1", "--out", PATH],
    "plot --out": ["plot", "ours.csv", "--out", f"{PATH}.png"],
    "analyse tsne --out": ["analyse", "tsne", "run", "--out", f"{PATH}.png"],
    "analyse priorities --out": ["analyse", "priorities", "run", "--out", f"{PATH}.png"],
    "analyse information --out": ["analyse", "information", "run", "--out", f"{PATH}.png"],
    "experiment run --out": ["experiment", "run", "breadth", "--local", "--out", PATH],
    "results --out": ["results", "ours.csv", "--out", PATH],
    "report --out": ["report", "ours.csv", "--out", PATH],
    "bench --json": ["bench", "gym/Pendulum-v1", "--json", PATH],
}
LONG = "x" * 3_000
ODD_INPUTS = ["nowhere", "", "empty", "empty.csv", "junk", "loop", "junk/x", LONG, f"empty/{LONG}", "/dev/null",
              "/dev/zero", "pipe"]  # fmt: skip
ODD_OUTPUTS = ["junk/x", "loop/x", LONG, f"deep/er/{LONG}", "/dev/null/x"]
ACCEPTED = {
    ("sweep --slurm-header", "empty.csv"),  # a header without lines
    ("experiment run --have", "empty"),  # a folder in which nothing is finished
}


def test_every_path_of_every_command_is_among_them():
    """Options and arguments whose values are paths; text that may be one is in the lists besides."""
    declared = {
        f"{' '.join(words)}{'' if option.is_argument else f' {option.spellings[0]}'}"
        for words, command in commands(COMMANDS).items()
        for option in options_of_command(command)
        if base_kind(option.kind) in (Path, tuple[Path, ...])
    }
    assert declared <= {*INPUTS, *OUTPUTS}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with something of everything."""
    folder = tmp_path_factory.mktemp("paths")
    write_results([Result("gym/Ant-v4", "dr.q", s, step, 1.0 + s, {}) for s in (0, 1) for step in (0, 9)],
                  folder / "ours.csv")  # fmt: skip
    shutil.copytree(DATA / "runs-675da62" / "states", folder / "run")
    shutil.copytree(DATA / "authors-agent" / "pendulum", folder / "agent")
    (folder / "empty").mkdir()
    (folder / "empty.csv").touch()
    (folder / "junk").write_bytes(bytes(range(256)) * 8)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    yield folder
    shutil.rmtree(folder)


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def run_with(words: list[str], path: str, place: Path, capsys, accepted: bool = False) -> None:
    before, start = listing(place), time.monotonic()
    code = main([word.replace(PATH, path) for word in words])
    out, said = capsys.readouterr()
    assert time.monotonic() - start < AT_MOST
    if accepted:
        assert code == 0
        for name in set(listing(place)) - set(before):
            shutil.rmtree(place / name, ignore_errors=True)
            (place / name).unlink(missing_ok=True)
        return
    assert code in (1, 2), out
    assert (out, said.count("\n")) == ("", 1), said
    assert said.startswith("dr-q: ")
    assert len(said) < 2_500
    assert listing(place) == before, "something was left behind"
    if path in ("nowhere", LONG, "junk/x", "loop"):
        assert code == 2, "another path must be given"


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_that_is_not_what_it_should_be(name, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for path in ODD_INPUTS:
        run_with(INPUTS[name], path, place, capsys, accepted=(name, path) in ACCEPTED)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_cannot_be_written(name, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.setattr("dr_q.diagnostics.bench.bench", lambda *_, **__: pytest.fail("it is timed"))
    for path in ODD_OUTPUTS:
        run_with(OUTPUTS[name], path, place, capsys)
