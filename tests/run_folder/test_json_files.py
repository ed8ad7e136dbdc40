"""What of a run's JSON files is refused: values that no run has, and files that would use up the stack."""

import json
import shutil
from pathlib import Path

import pytest

import dr_q
from dr_q.run_folder import Checkpoints, Fields, policy_record, read_json

RUN = Path(__file__).parents[1] / "data" / "runs-675da62" / "states"


@pytest.fixture
def run(tmp_path) -> Path:
    shutil.copytree(RUN, tmp_path / "run")
    return tmp_path / "run"


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize(
    "values",
    [
        {"action_shape": "x"}, {"action_shape": ""}, {"action_shape": [2]}, {"action_shape": [3, 0]},
        {"action_low": [0.0]}, {"action_high": [-1.0] * 3}, {"obs_shape": [10**30]}, {"obs_shape": [True]},
        {"obs_parts": [["x", [12]]]}, {"obs_parts": [[3, [1]]]}, {"history": 0, "obs_shape": [3, 4, 5]},
    ],
)  # fmt: skip
def test_spaces_that_no_environment_has_are_refused(values, run):
    change(run / "policy" / "policy.json", **values)
    with pytest.raises(dr_q.DamagedFileError, match="is damaged: it has no spaces that can be read; take it from"):
        policy_record(run)


def test_numbers_of_the_log_that_no_float_holds_are_refused(run):
    for wrong in (10**400, True, "x", None):
        change(run / "checkpoints" / "160" / "checkpoint.json", encoder_seen={"loss": [wrong, 1.0]})
        with pytest.raises(dr_q.DamagedFileError, match=r"encoder_metrics.loss must be numbers, got \["):
            Checkpoints(run, [0, 1]).read(160)
    change(run / "checkpoints" / "160" / "checkpoint.json", encoder_seen={"loss": [float("nan"), 1]})
    assert Checkpoints(run, [0, 1]).read(160).encoder_metrics


@pytest.mark.parametrize(("depth", "read"), [(90, True), (150, False), (900, False), (100_000, False)])
def test_a_file_that_is_nested_deeply_is_not_read(depth, read, tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"a": ' + "[" * depth + "]" * depth + "}")
    assert bool(read_json(file)) == read


def test_fields_are_named_with_their_values():
    fields = Fields(Path("x.json"), {"names": ["a", 3], "of": {"a": 1}, "long": ["x" * 5_000]}, "make another")
    for call, said in (
        (lambda: fields.texts("names"), "names must be a list of texts, got ['a', 3]"),
        (lambda: fields.objects("of"), "of must be names and values for each name, got {'a': 1}"),
        (lambda: fields.text("long"), f"long must be text, got ['{'x' * 58}... (5,004 characters)"),
    ):
        with pytest.raises(dr_q.DamagedFileError) as error:
            call()
        assert str(error.value) == f"x.json is damaged: {said}; make another"
