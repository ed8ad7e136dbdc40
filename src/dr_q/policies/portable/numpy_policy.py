"""A trained policy of dr-q in plain NumPy; its weights are in `weights.npz`, next to this file.

`policy.reset()` begins an episode. `policy.act(obs)` takes an observation of the environment and gives its next action.
"""

import json
from pathlib import Path

import numpy as np

ACTIVATIONS = {"relu": lambda x: np.maximum(x, 0), "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)}


class Policy:
    """From observations to actions: flattening, frame stack, normalisation, networks, the environment's bounds."""

    def __init__(self):
        with np.load(Path(__file__).with_name("weights.npz")) as arrays:
            self.spec = json.loads(str(arrays["spec"]))
            self.weights = {name: arrays[name].astype(np.float32) for name in arrays if name != "spec"}
        self.encoder_activation, self.actor_activation = (ACTIVATIONS[name] for name in self.spec["activations"])
        self.reset()

    def reset(self):
        """Begin an episode: forget the frames of the last one."""
        self.frames = [[] for _ in self.spec["parts"]]

    def act(self, obs):
        """The action for the next observation; or for the next of a batch, each array with one more axis in front."""
        return self.to_env(self.act_unit(obs))

    def act_unit(self, obs):
        """The same in [-1, 1]; for discrete actions the logit of every value."""
        z_s, batched = 0, False
        for i, (part, frames) in enumerate(zip(self.spec["parts"], self.frames)):
            new = np.concatenate([self.entry(obs, field) for field in part["fields"]], part["axis"])
            frames[:] = [*frames[1:], new] if frames else [new] * part["stack"]  # the first frame is repeated
            x, batched = np.concatenate(frames, part["axis"]), new.ndim + part["axis"] > 0
            z_s = z_s + self.branch(f"part{i}", part, x if batched else x[None])
        out = self.mlp("actor", self.normed(z_s, self.encoder_activation), self.actor_activation)
        out = np.tanh(out) if self.spec["action"]["kind"] == "continuous" else out
        return out if batched else out[0]

    def branch(self, name, part, x):
        """What a part of the observation adds to the latent state z_s."""
        if part["kind"] == "vector":
            if part["normalised"]:
                x = np.clip((x - self.weights[f"{name}_mean"]) / self.weights[f"{name}_deviation"], -10, 10)
            return self.mlp(name, x, self.encoder_activation)
        x = x.astype(np.float32) / 255 - 0.5
        for i, stride in enumerate((2, 2, 2, 1), start=1):
            windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
            x = np.tensordot(windows, self.weights[f"{name}_conv{i}_weight"], axes=([1, 4, 5], [1, 2, 3]))
            x = np.moveaxis(self.encoder_activation(x + self.weights[f"{name}_conv{i}_bias"]), -1, 1)
        return self.linear(f"{name}_linear", x.reshape(len(x), -1))

    def mlp(self, name, x, activation):
        """Two hidden layers with layer norm, and a plain output."""
        for i in (1, 2):
            x = self.normed(self.linear(f"{name}_linear{i}", x), activation)
        return self.linear(f"{name}_linear3", x)

    def linear(self, name, x):
        """x W^T + b."""
        return x @ self.weights[f"{name}_weight"].T + self.weights[f"{name}_bias"]

    def to_env(self, out):
        """From [-1, 1] to the environment's bounds; from logits to the values with the largest."""
        action = self.spec["action"]
        if action["kind"] == "continuous":
            low, high = np.array(action["low"]), np.array(action["high"])
            own = (low + (out.astype(np.float64) + 1) * 0.5 * (high - low)).astype(np.float32)
            own = np.clip(own, np.float32(action["least"]), np.float32(action["most"]))  # rounding may lead out
        else:
            logits = np.split(out, np.cumsum(action["choices"])[:-1], axis=-1)
            own = np.stack([x.argmax(axis=-1) for x in logits], axis=-1) + np.array(action["start"])
        own = own.reshape((*own.shape[:-1], *action["shape"]))
        return own[() if action["kind"] == "discrete" else ...]  # one choice is a number, as in Gymnasium

    def normed(self, x, activation):
        """activation(LayerNorm(x)), without scale and shift."""
        x = x - x.mean(axis=-1, keepdims=True)
        return activation(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5))

    def entry(self, obs, field):
        """What the networks need of an observation's entry: keys of dicts and indices of tuples, with / between."""
        path, shape, image = field["path"], field["shape"], field["kind"] == "image"
        while path and isinstance(obs, (dict, tuple)):
            inner = obs if isinstance(obs, dict) else {str(i): x for i, x in enumerate(obs)}
            key = next((key for key in inner if f"{path}/".startswith(f"{key}/")), path)
            obs, path = inner[key], path[len(key) + 1 :]
        x = np.asarray(obs)
        if list(x.shape[x.ndim - len(shape) :]) != shape or not np.isfinite(x).all() or (image and x.dtype != np.uint8):
            raise ValueError(f"observation '{field['path']}': got {x.dtype} {x.shape} {x}, expected {field}, finite")
        if image:
            return np.array(np.moveaxis(x, -1, -3))  # (height, width, channels) with the channels first
        x = x.reshape(*x.shape[: x.ndim - len(shape)], -1)
        return (x[..., field["columns"]] == field["values"] if field["kind"] == "choice" else x).astype(np.float32)
