"""The forms of an export: writing one into a folder, and running what was written."""

import importlib.util
import io
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from dr_q.kit import MissingPackageError, is_installed
from dr_q.policies.portable.model import PortablePolicy, fields

PortableFormat = Literal["onnx", "numpy", "torch"]
ONNX_FILE, NUMPY_WEIGHTS, TORCH_WEIGHTS = "policy.onnx", "weights.npz", "weights.pt"
CODE_FILE = "policy.py"
"""What the forms of NumPy and PyTorch are run with."""
_HERE = Path(__file__).parent
_NEEDS = {"onnx": ("onnx", "onnxruntime"), "numpy": (), "torch": ("torch",)}
_INSTALL = {"onnx": "pip install 'dr-q[onnx]'", "torch": "pip install torch"}


@runtime_checkable
class Runner(Protocol):
    """An export that was opened for running; it remembers the frames of its episodes."""

    def reset(self) -> None:
        """Begin an episode, or a batch of episodes."""
        ...

    def act(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Actions for a batch of observations, given as arrays by path: in the environment's units, and as the networks
        give them, in [-1, 1] or logits."""
        ...


def check_packages(form: PortableFormat) -> None:
    """Refuse a form whose packages are not installed.

    Raises:
        MissingPackageError: Which one, and how to install it.
    """
    missing = [name for name in _NEEDS[form] if not is_installed(name)]
    if missing:
        raise MissingPackageError(
            f"the format {form} needs {' and '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: {_INSTALL[form]}"
        )


def write_form(form: PortableFormat, policy: PortablePolicy, folder: Path) -> list[Path]:
    """Write a policy in a form into a folder; returns its files, the weights first."""
    folder.mkdir(parents=True, exist_ok=True)
    if form == "onnx":
        from dr_q.policies.portable.onnx_model import onnx_model

        (folder / ONNX_FILE).write_bytes(onnx_model(policy).SerializeToString())
        return [folder / ONNX_FILE]
    spec = json.dumps(policy.spec)
    if form == "numpy":
        arrays: dict[str, Any] = {"spec": np.array(spec), **policy.arrays}
        np.savez(folder / NUMPY_WEIGHTS, **arrays)
        weights = folder / NUMPY_WEIGHTS
    else:
        import torch  # pyright: ignore[reportMissingImports]

        buffer = io.BytesIO()  # a path would write its own name into the file
        torch.save({"spec": spec, "weights": {n: torch.tensor(x) for n, x in policy.arrays.items()}}, buffer)
        weights = folder / TORCH_WEIGHTS
        weights.write_bytes(buffer.getvalue())
    code = folder / CODE_FILE
    shutil.copyfile(_HERE / f"{form}_policy.py", code)
    return [weights, code]


def open_form(form: PortableFormat, folder: Path) -> Runner:
    """What `write_form` wrote, read from its files."""
    return _OnnxRunner(folder / ONNX_FILE) if form == "onnx" else _CodeRunner(folder / CODE_FILE)


class _CodeRunner:
    """`policy.py` of an export, run as its user would."""

    def __init__(self, file: Path):
        spec = importlib.util.spec_from_file_location(f"dr_q_export_{file.parent.name}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._policy = module.Policy()
        self.reset: Callable[[], None] = self._policy.reset

    def act(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        unit = self._policy.act_unit(obs[""] if set(obs) == {""} else dict(obs))
        return np.asarray(self._policy.to_env(unit)), np.asarray(unit)


class _OnnxRunner:
    """A model in ONNX Runtime, on the CPU."""

    def __init__(self, file: Path):
        import onnxruntime

        from dr_q.policies.portable import onnx_model as names

        self._session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self._spec = json.loads(self._session.get_modelmeta().custom_metadata_map["spec"])
        self._outputs = [x.name for x in self._session.get_outputs()]
        self._names = names
        self._stacked = [part for part in self._spec["parts"] if part["stack"] > 1]
        self.reset()

    def reset(self) -> None:
        self._frames: dict[str, np.ndarray] = {}

    def act(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        kinds = {"image": np.uint8, "choice": np.int64, "number": np.float32}
        inputs = {
            self._names.input_name(f["path"]): obs[f["path"]].astype(kinds[f["kind"]]) for f in fields(self._spec)
        }
        rows = len(next(iter(inputs.values())))
        if self._stacked:
            inputs[self._names.FIRST] = np.full(rows, not self._frames)
        for value in self._session.get_inputs():
            if value.name not in inputs:
                frames = self._frames.get(value.name)
                kind = np.uint8 if "uint8" in value.type else np.float32
                inputs[value.name] = np.zeros((rows, *value.shape[1:]), kind) if frames is None else frames
        found = dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))
        for part in self._stacked:
            before, after = self._names.frames_name(part)
            self._frames[before] = np.asarray(found[after])
        unit = found["unit_action"] if "unit_action" in found else found["logits"]
        return np.asarray(found["action"]), np.asarray(unit)
