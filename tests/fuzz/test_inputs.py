"""Files that users bring, damaged or of wrong types: curves of others, presets, transitions, the authors' agents."""

import contextlib
import io
import pickle
import shutil
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dr_q
from dr_q.cli import main
from dr_q.config import PRESETS, load_presets
from dr_q.kit import DrQError
from dr_q.policies import torch_files
from dr_q.policies.authors import import_authors
from dr_q.policies.torch_files import read_saved_variables, read_state_dict
from dr_q.report import Result, read_references, write_results
from dr_q.spaces import ContinuousActions, DiscreteActions, ObsSpec, Spaces
from dr_q.training.prior_data import read_prior_data
from tests.fuzz.damage import damaged
from tests.fuzz.readers import bounded, check_reader, files_of

AGENT = Path(__file__).parents[1] / "data" / "authors-agent" / "pendulum"

# Curves of others.

STEPS = (0, 25_000, 50_000)
THEIRS = "exp_name,env_name,seed,metric,env_step,value\n" + "".join(
    f"drq,{task},{seed}.0,avg_return,{step}.0,{seed + step / 7}\n"
    for task in ("Ant_v4", "other") for seed in (0, 10) for step in STEPS
)  # fmt: skip
OTHERS = "env_id,seed,agent_step,value\n" + "".join(
    f"Ant-v4,{seed},{step},{step}\n" for seed in (0, 1) for step in STEPS
)


@pytest.mark.parametrize("text", [THEIRS, OTHERS])
def test_references(text, tmp_path, capsys):
    write_results([Result("gym/Ant-v4", "dr.q", seed, step, 1.0 + seed, {}) for seed in (0, 1) for step in STEPS],
                  tmp_path / "ours.csv")  # fmt: skip
    file = tmp_path / "drq.csv"

    @bounded(max_examples=60)
    @given(data=damaged(text.encode()))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        check_reader(lambda path: read_references([path]), file)
        code = main(["compare", str(tmp_path / "ours.csv"), "--reference", str(file)])
        said = capsys.readouterr().err
        assert code in (0, 1, 2)
        assert code == 0 or (said.startswith("dr-q: ") and said.count("\n") == 1)

    check()


# Presets.

PRESET = """# Mine.
[large-batch]
batch_size = 512
reward_range = [-5.0, 5.0]
[large-batch-slow]
base = "large-batch"
fade-decay = 1e-5
sampling = "uniform"
reward_scaling = true
"""
_TOML: list[Any] = [
    "1", "-1", "0.5", "1e400", "nan", "-inf", "true", '""', '"x"', "[]", "[1, 2]", "[[[1]]]", "{}", "{a = 1}",
    "1979-05-27", "1979-05-27T07:32:00Z", "9" * 400, "0x10", '"\\u0000"', "'''\n'''",
]  # fmt: skip


@st.composite
def presets_of_wrong_types(draw: Any) -> bytes:
    """The same file with other values."""
    lines: list[str] = [*PRESET.splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from([i for i, line in enumerate(lines) if "=" in line]))
        lines[at] = f"{lines[at].partition('=')[0]}= {draw(st.sampled_from(_TOML))}"
    return "\n".join(lines).encode()


def test_presets(tmp_path, monkeypatch):
    file, built_in = tmp_path / "mine.toml", dict(PRESETS)

    @bounded(max_examples=150)
    @given(data=st.one_of(damaged(PRESET.encode()), presets_of_wrong_types()))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        try:
            check_reader(load_presets, file)
            assert all(isinstance(dr_q.preset(name), dr_q.Config) for name in PRESETS)
        finally:
            PRESETS.clear()
            PRESETS.update(built_in)

    check()


# Transitions.

WALK = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
CHOICE = Spaces(ObsSpec.vector(1), DiscreteActions((3,)))


def transitions(count: int = 20) -> dict[str, np.ndarray]:
    at = np.arange(count + 1, dtype=np.float32)[:, None]
    zeros = np.zeros(count)
    return {
        "observations": at[:-1],
        "actions": np.zeros((count, 1), np.float32),
        "rewards": np.linspace(0, 1, count),
        "next_observations": at[1:],
        "terminations": zeros.astype(bool),
        "truncations": zeros.astype(np.uint8),
    }


def read(path: Path, spaces: Spaces = WALK) -> Any:
    return read_prior_data(str(path), spaces, [0], 30, horizon=5)


def npz(arrays: dict[str, np.ndarray], *, compressed: bool = False) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)  # pyright: ignore[reportArgumentType]
    return file.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_transitions_in_a_damaged_file(compressed, tmp_path):
    file = tmp_path / "data.npz"

    @bounded(max_examples=100)
    @given(data=damaged(npz(transitions(), compressed=compressed)))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        check_reader(read, file)
        assert list(tmp_path.iterdir()) == [file]

    check()


_DTYPES = ("f4", "f8", "f2", "i1", "u8", "?", "c8", "U3", "S2", "M8[s]", "m8[s]", "V2", "i4,f4")


@st.composite
def other_transitions(draw: Any) -> dict[str, np.ndarray]:
    """Arrays of other types, shapes and names."""
    arrays = transitions()
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(arrays) or ["x"]))
        how = draw(st.sampled_from(["type", "type", "shape", "value", "name", "remove"]))
        if how == "type":
            arrays[name] = np.zeros(arrays[name].shape, draw(st.sampled_from(_DTYPES)))
        elif how == "shape":
            shape = draw(st.sampled_from([(), (0,), (20,), (20, 1), (20, 2), (20, 0), (19, 1), (1, 20), (20, 1, 1)]))
            arrays[name] = np.zeros(shape, np.float32)
        elif how == "value" and arrays[name].size:
            value = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1.0, 0.5, 2.0, 300.0]))
            with contextlib.suppress(OverflowError, ValueError), np.errstate(all="ignore"):
                arrays[name] = np.full(arrays[name].shape, value)
        else:
            value = arrays.pop(name)
            if how == "name":
                arrays[draw(st.sampled_from(["observations/obs", "observations/", "rewards/x", "é", "x"]))] = value
    return arrays


@bounded(max_examples=200)
@given(arrays=other_transitions(), spaces=st.sampled_from([WALK, CHOICE]))
@pytest.mark.filterwarnings("error")
def test_transitions_of_wrong_types(arrays, spaces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "data.npz").write_bytes(npz(arrays))
    check_reader(lambda path: read(path, spaces), folder / "data.npz")
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rewards", np.zeros((20, 2)), "'rewards' has shape (20, 2), expected (20,): one number for each transition"),
        ("rewards", np.array(["1"] * 20), "'rewards' holds <U1, expected numbers; convert it before numpy.savez"),
        ("actions", np.array(["left"] * 20), "'actions' holds <U4, expected numbers"),
        ("observations", np.array([["1.5"]] * 20), "'observations' holds <U3, expected numbers"),
        ("observations", np.zeros((20, 1), complex), "'observations' holds complex128, expected numbers"),
        ("terminations", np.array(["no"] * 20), "'terminations' holds <U2, expected numbers"),
        ("terminations", np.full(20, np.nan), "'terminations' of transition 0 is nan, expected False or True, or 0"),
        ("truncations", np.full(20, 2), "'truncations' of transition 0 is 2, expected False or True, or 0 or 1"),
    ],
)
def test_arrays_that_are_no_transitions_are_refused(name, value, message, tmp_path, capsys):
    arrays = {**transitions(), "actions": np.zeros((20, 1))}
    arrays["observations"], arrays["next_observations"] = (np.zeros((20, 3)) for _ in range(2))
    arrays[name] = value
    file = tmp_path / "data.npz"
    np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    words = ["train", "gym/Pendulum-v1", "--prefill", str(file), "--out", str(tmp_path / "run"), "--preset", "quick"]
    assert main([*words, "--steps", "10"]) == 2
    out, said = capsys.readouterr()
    assert said.startswith(f"dr-q: --prefill {file}: {message}")
    assert (out, said.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == [file]


def test_a_compressed_file_whose_bytes_changed_is_said_to_be_damaged(tmp_path):
    data = bytearray(npz(transitions(2_000), compressed=True))
    data[200:260] = bytes(60)
    (tmp_path / "data.npz").write_bytes(data)
    with pytest.raises(dr_q.DamagedFileError, match=r"data.npz cannot be read as an .npz file \(.+\); write it with"):
        read(tmp_path / "data.npz")


# Agents of the authors' code.


@pytest.mark.parametrize("name", ["encoder.pt", "policy.pt", "value.pt", "agent_var.npy"])
def test_files_of_the_authors_agents(name, tmp_path):
    shutil.copytree(AGENT, tmp_path / "agent")
    file, out = tmp_path / "agent" / name, tmp_path / "policy"
    whole, before = file.read_bytes(), files_of(tmp_path)
    reader: Any = read_saved_variables if name.endswith(".npy") else read_state_dict

    @bounded(max_examples=60)
    @given(data=damaged(whole))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        check_reader(reader, file)
        try:
            reader(file)
        except DrQError:
            return
        check_reader(lambda path: import_authors(path.parent, "gym/Pendulum-v1", out), file)
        shutil.rmtree(out, ignore_errors=True)
        assert files_of(tmp_path) == {**before, f"agent/{name}": len(data)}

    check()


LARGE = (2**26).to_bytes(4, "little")
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
STATE = b"(K\x01J" + LARGE + b"\x85cnumpy\ndtype\n(X\x02\x00\x00\x00O8K\x00K\x01tR\x89]}atb."


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}r" + LARGE + b".",  # an object with a number that makes room for so many others
        b"\x80\x02X" + LARGE + b"x.",  # a text of that length
        b"\x80\x02\x8a\x01\x05" + b"I" + b"9" * 5_000 + b"\n.",
        b"\x80\x02}X\x01\x00\x00\x00a" + ARRAY + STATE[:-1] + b"s.",  # an array of as many objects
        b"\x80\x02" + ARRAY + STATE,
    ],
)
def test_a_few_bytes_cannot_ask_for_much_memory(data, tmp_path):
    """Of files that are unpickled; the limit is a fraction of what each of them asks for."""
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("x/data.pkl", data)
        archive.writestr("x/data/0", bytes(16))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False, "shape": ()})
    (tmp_path / "x.npy").write_bytes(head.getvalue() + data)
    tracemalloc.start()
    try:
        check_reader(read_state_dict, tmp_path / "x.pt")
        check_reader(read_saved_variables, tmp_path / "x.npy")
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("shape", "strides"), [((2**40,), (0,)), ((2**20, 2**20), (0, 0)), ((5,), (0,)), ((-1,), (1,))]
)
def test_a_tensor_cannot_be_larger_than_its_storage(shape, strides):
    with pytest.raises(pickle.UnpicklingError, match=r"outside its storage of 4 numbers"):
        torch_files._rebuild_tensor(np.zeros(4, np.float32), 0, shape, strides)  # pyright: ignore[reportPrivateUsage]
    whole = torch_files._rebuild_tensor(np.arange(4.0), 0, (2, 2), (1, 2))  # pyright: ignore[reportPrivateUsage]
    np.testing.assert_array_equal(whole, [[0, 2], [1, 3]])
