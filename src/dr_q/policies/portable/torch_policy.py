"""A trained policy of dr-q in PyTorch; its weights are in `weights.pt`, next to this file.

`policy.reset()` begins an episode. `policy.act(obs)` takes an observation of the environment and gives its next action.
"""

import json
from pathlib import Path

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]


class Policy(torch.nn.Module):
    """From observations to actions: flattening, frame stack, normalisation, networks, the environment's bounds."""

    def __init__(self):
        super().__init__()
        saved = torch.load(Path(__file__).with_name("weights.pt"), weights_only=True, map_location="cpu")
        self.spec = json.loads(saved["spec"])
        self.weights = torch.nn.ParameterDict({name: x.float() for name, x in saved["weights"].items()})
        self.encoder_activation, self.actor_activation = (getattr(functional, x) for x in self.spec["activations"])
        self.reset()

    def reset(self):
        """Begin an episode: forget the frames of the last one."""
        self.frames = [[] for _ in self.spec["parts"]]

    def act(self, obs):
        """The action for the next observation; or for the next of a batch, each array with one more axis in front."""
        return self.to_env(self.act_unit(obs))

    @torch.no_grad()
    def act_unit(self, obs):
        """The same in [-1, 1]; for discrete actions the logit of every value."""
        parts, batched = [], False
        for part, frames in zip(self.spec["parts"], self.frames):
            new = torch.cat([self.entry(obs, field) for field in part["fields"]], part["axis"])
            frames[:] = [*frames[1:], new] if frames else [new] * part["stack"]  # the first frame is repeated
            parts, batched = [*parts, torch.cat(frames, part["axis"])], new.ndim + part["axis"] > 0
        return self(*parts) if batched else self(*(x[None] for x in parts))[0]

    def forward(self, *parts):
        """The networks, for a batch: one tensor for each part of the observation."""
        z_s = torch.stack([self.branch(f"part{i}", self.spec["parts"][i], x) for i, x in enumerate(parts)]).sum(0)
        z_s = self.encoder_activation(functional.layer_norm(z_s, z_s.shape[-1:]))
        out = self.mlp("actor", z_s, self.actor_activation)
        return torch.tanh(out) if self.spec["action"]["kind"] == "continuous" else out

    def branch(self, name, part, x):
        """What a part of the observation adds to the latent state z_s."""
        if part["kind"] == "vector":
            if part["normalised"]:
                x = ((x - self.weights[f"{name}_mean"]) / self.weights[f"{name}_deviation"]).clamp(-10, 10)
            return self.mlp(name, x, self.encoder_activation)
        x = x.float() / 255 - 0.5
        for i, stride in enumerate((2, 2, 2, 1), start=1):
            weight, bias = self.weights[f"{name}_conv{i}_weight"], self.weights[f"{name}_conv{i}_bias"]
            x = self.encoder_activation(functional.conv2d(x, weight, bias, stride))
        return self.linear(f"{name}_linear", x.flatten(1))

    def mlp(self, name, x, activation):
        """Two hidden layers with layer norm, and a plain output."""
        for i in (1, 2):
            x = self.linear(f"{name}_linear{i}", x)
            x = activation(functional.layer_norm(x, x.shape[-1:]))
        return self.linear(f"{name}_linear3", x)

    def linear(self, name, x):
        """x W^T + b."""
        return functional.linear(x, self.weights[f"{name}_weight"], self.weights[f"{name}_bias"])

    def to_env(self, out):
        """From [-1, 1] to the environment's bounds, or from logits to the values with the largest, in NumPy."""
        action, out = self.spec["action"], out.cpu().numpy()
        if action["kind"] == "continuous":
            low, high = np.array(action["low"]), np.array(action["high"])
            own = (low + (out.astype(np.float64) + 1) * 0.5 * (high - low)).astype(np.float32)
            own = np.clip(own, np.float32(action["least"]), np.float32(action["most"]))  # rounding may lead out
        else:
            logits = np.split(out, np.cumsum(action["choices"])[:-1], axis=-1)
            own = np.stack([x.argmax(axis=-1) for x in logits], axis=-1) + np.array(action["start"])
        own = own.reshape((*own.shape[:-1], *action["shape"]))
        return own[() if action["kind"] == "discrete" else ...]  # one choice is a number, as in Gymnasium

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
        if image:  # (height, width, channels), with the channels first
            return torch.tensor(np.moveaxis(x, -1, -3), device=next(self.parameters()).device)
        x = torch.tensor(x.reshape(*x.shape[: x.ndim - len(shape)], -1), device=next(self.parameters()).device)
        return (x[..., field["columns"]] == x.new_tensor(field["values"]) if field["kind"] == "choice" else x).float()
