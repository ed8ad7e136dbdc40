"""A policy as an ONNX model: flattening, frame stack, normalisation, networks and the environment's bounds.

Inputs are the entries of the environment's observation, by path (`obs` if it has only one), with a batch axis in front.
A part of stacked frames has two further inputs. `PATH:frames` is the last call's output `PATH:next_frames`. `first`
says in which rows an episode begins: there `PATH:frames` is not used, and the frame is repeated. Outputs are `action`,
in the environment's units, and `unit_action`, in [-1, 1], or `logits`.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dr_q.networks.encoder import CONV_STRIDES
from dr_q.networks.norm import EPSILON
from dr_q.networks.normaliser import LARGEST
from dr_q.policies.portable.model import PortablePolicy, field_length
from dr_q.spaces import SINGLE

OPSET = 17
"""The first with LayerNormalization."""
IR_VERSION = 8
"""Of OPSET's time, so that older runtimes read the file, too."""
FIRST = "first"
RESERVED = {FIRST, "action", "unit_action", "logits"}
"""Names that have a meaning; an entry of an observation that is called so gets `obs/` in front."""


def onnx_model(policy: PortablePolicy) -> onnx.ModelProto:
    """The model; its metadata holds the policy's spec as JSON."""
    graph = _Graph(policy)
    model = helper.make_model(
        graph.build(), opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="dr-q"
    )
    helper.set_model_props(model, {"spec": json.dumps(policy.spec)})
    onnx.checker.check_model(model, full_check=True)
    return model


def input_name(path: str) -> str:
    """The input of the entry at a path of the environment's observation."""
    return f"{SINGLE}/{path}" if path in RESERVED else path or SINGLE


def frames_name(part: dict[str, Any]) -> tuple[str, str]:
    """The input and the output that hold a part's stack of frames."""
    name = input_name(part["fields"][0]["path"])
    return f"{name}:frames", f"{name}:next_frames"


class _Graph:
    def __init__(self, policy: PortablePolicy):
        self._spec = policy.spec
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[str, np.ndarray] = dict(policy.arrays)
        self._encoder, self._actor = (name.capitalize() for name in policy.spec["activations"])

    def build(self) -> onnx.GraphProto:
        if any(part["stack"] > 1 for part in self._spec["parts"]):
            self._input(FIRST, TensorProto.BOOL, [])
        shares = [self._branch(i, part) for i, part in enumerate(self._spec["parts"])]
        z_s = shares[0]
        for share in shares[1:]:
            z_s = self._add("Add", z_s, share)
        width = len(self._constants["actor_linear1_weight"][0])
        out = self._mlp("actor", self._normed(z_s, width, self._encoder), self._actor)
        self._action(out)
        initialisers = []
        for name, x in self._constants.items():
            half = x.dtype == np.float16  # kept so in the file; computed with in float32
            initialisers.append(numpy_helper.from_array(np.ascontiguousarray(x), f"{name}_float16" if half else name))
            if half:
                cast = helper.make_node("Cast", [f"{name}_float16"], [name], to=TensorProto.FLOAT)
                self._nodes.insert(0, cast)
        return helper.make_graph(self._nodes, "dr-q policy", self._inputs, self._outputs, initialisers)

    def _input(self, name: str, kind: int, shape: Sequence[int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        return name

    def _output(self, name: str, kind: int, shape: Sequence[int], value: str) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, ["batch", *shape]))

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f":v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def _constant(self, value: Any, kind: Any) -> str:
        name = f":c{len(self._constants)}"
        self._constants[name] = np.asarray(value, kind)
        return name

    def _branch(self, i: int, part: dict[str, Any]) -> str:
        """What a part of the observation adds to z_s."""
        if part["kind"] == "image":
            return self._image_branch(f"part{i}", part)
        x = self._stacked(self._joined(part), part, [sum(map(field_length, part["fields"]))], TensorProto.FLOAT)
        if part["normalised"]:
            x = self._add("Div", self._add("Sub", x, f"part{i}_mean"), f"part{i}_deviation")
            x = self._add("Clip", x, self._constant(-LARGEST, np.float32), self._constant(LARGEST, np.float32))
        return self._mlp(f"part{i}", x, self._encoder)

    def _joined(self, part: dict[str, Any]) -> str:
        """The part's entries, flattened, choices as one-hot vectors."""
        found = []
        for field in part["fields"]:
            choice = field["kind"] == "choice"
            kind = TensorProto.INT64 if choice else TensorProto.FLOAT
            x = self._input(input_name(field["path"]), kind, field["shape"])
            x = self._add("Reshape", x, self._constant([-1, math.prod(field["shape"])], np.int64))
            if choice:
                x = self._add("Gather", x, self._constant(field["columns"], np.int64), axis=1)
                x = self._add("Equal", x, self._constant([field["values"]], np.int64))
                x = self._add("Cast", x, to=TensorProto.FLOAT)
            found.append(x)
        return found[0] if len(found) == 1 else self._add("Concat", *found, axis=1)

    def _image_branch(self, name: str, part: dict[str, Any]) -> str:
        (field,) = part["fields"]
        height, width, channels = field["shape"]
        frame = self._input(input_name(field["path"]), TensorProto.UINT8, field["shape"])
        frame = self._add("Transpose", frame, perm=[0, 3, 1, 2])
        x = self._stacked(frame, part, [channels, height, width], TensorProto.UINT8)
        x = self._add("Div", self._add("Cast", x, to=TensorProto.FLOAT), self._constant(255, np.float32))
        x = self._add("Sub", x, self._constant(0.5, np.float32))
        for i, stride in enumerate(CONV_STRIDES, start=1):
            weight, bias = f"{name}_conv{i}_weight", f"{name}_conv{i}_bias"
            x = self._add(self._encoder, self._add("Conv", x, weight, bias, strides=[stride, stride]))
        return self._linear(f"{name}_linear", self._add("Flatten", x, axis=1))

    def _stacked(self, frame: str, part: dict[str, Any], shape: list[int], kind: int) -> str:
        """The frame with those before it; at an episode's beginning it is repeated."""
        stack, (length, *others) = part["stack"], shape
        if stack == 1:
            return frame
        before, after = frames_name(part)
        whole = [stack * length, *others]
        frames = self._input(before, kind, whole)
        start, end, axis = (self._constant([n], np.int64) for n in (length, stack * length, 1))
        later = self._add("Concat", self._add("Slice", frames, start, end, axis), frame, axis=1)
        again = self._add("Concat", *[frame] * stack, axis=1)
        first = self._add("Reshape", FIRST, self._constant([-1] + [1] * len(whole), np.int64))
        stacked = self._add("Where", first, again, later)
        self._output(after, kind, whole, stacked)
        return stacked

    def _mlp(self, name: str, x: str, activation: str) -> str:
        for i in (1, 2):
            x = self._linear(f"{name}_linear{i}", x)
            x = self._normed(x, len(self._constants[f"{name}_linear{i}_bias"]), activation)
        return self._linear(f"{name}_linear3", x)

    def _linear(self, name: str, x: str) -> str:
        return self._add("Gemm", x, f"{name}_weight", f"{name}_bias", transB=1)

    def _normed(self, x: str, width: int, activation: str) -> str:
        scale = self._constant(np.ones(width), np.float32)
        return self._add(activation, self._add("LayerNormalization", x, scale, axis=-1, epsilon=EPSILON))

    def _action(self, out: str) -> None:
        action = self._spec["action"]
        size = len(self._constants["actor_linear3_bias"])
        shape = self._constant([-1, *action["shape"]], np.int64)
        if action["kind"] == "discrete":
            lengths = self._constant(action["choices"], np.int64)
            logits = [f":logits{i}" for i in range(len(action["choices"]))]
            self._nodes.append(helper.make_node("Split", [out, lengths], logits, axis=1))
            picked = self._add("Concat", *(self._add("ArgMax", x, axis=1, keepdims=1) for x in logits), axis=1)
            own = self._add("Add", picked, self._constant([action["start"]], np.int64))
            self._output("action", TensorProto.INT64, action["shape"], self._add("Reshape", own, shape))
            self._output("logits", TensorProto.FLOAT, [size], out)
            return
        unit = self._add("Tanh", out)
        low, high = np.array(action["low"]), np.array(action["high"])
        half = self._constant([(high - low) / 2], np.float32)
        middle = self._constant([low + (high - low) / 2], np.float32)
        own = self._add("Add", self._add("Mul", unit, half), middle)
        own = self._add("Min", self._add("Max", own, self._constant([action["least"]], np.float32)),
                        self._constant([action["most"]], np.float32))  # fmt: skip
        self._output("action", TensorProto.FLOAT, action["shape"], self._add("Reshape", own, shape))
        self._output("unit_action", TensorProto.FLOAT, [size], unit)
