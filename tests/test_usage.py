"""Mistakes on the command line get one line and exit code 2."""

import pytest

from dr_q.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "train x --learning-rate 3",
            "unknown option --learning-rate; did you mean --actor-learning-rate or --critic-",
        ),
        ("sweep dmc --seds 3", "unknown option --seds; did you mean --seeds?; see dr-q sweep --help"),
        ("trian", "unknown command 'trian'; did you mean train? commands: train, sweep, "),
        (
            "analyse tsnee",
            "unknown command 'tsnee'; did you mean tsne? commands: tsne, priorities, information; see dr-q",
        ),
        ("experiment run", "missing: NAME"),
        ("train x --steps", "--steps needs a value; see dr-q train --help"),
        ("train x --steps 1e4", "--steps must be a whole number, got '1e4'; see dr-q train --help"),
        ("train x --discount q", "--discount must be a number, got 'q'; see dr-q train --help"),
        ("train x --reward-range 5", "--reward-range needs 2 values, got 1; see dr-q train --help"),
        ("train x --reward-range 5 b", "--reward-range: no type matching"),
        ("train x --in-process true", "--in-process must be 'False' or 'True', got 'true'; see dr-q train --help"),
        ("train x y", "nothing is to be done with 'y'; see dr-q train --help"),
        ("eval x --episodes q", "--episodes must be a whole number, got 'q'; see dr-q eval --help"),
        ("export", "missing: DIR, --out PATH; see dr-q export --help"),
        ("", "no command given; commands: train, "),
    ],
)
def test_mistakes(arguments, said, capsys):
    assert main(arguments.split()) == 2
    out, error = capsys.readouterr()
    assert error.startswith(f"dr-q: {said}")
    assert (error.count("\n"), out) == (1, "")


def test_help_and_version_are_no_mistakes(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code in (0, None)
    assert "--eval-every" in capsys.readouterr().out
    assert main(["--version"]) == main(["version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
