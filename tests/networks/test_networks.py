import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q.agent import init_networks
from dr_q.config import Config, preset
from dr_q.envs.gymnasium_adapter import SMALLEST_IMAGE
from dr_q.networks import (
    MLP,
    Encoder,
    ImageBranch,
    Linear,
    VectorBranch,
    actor_from_torch,
    conv_outputs,
    norm_kernel,
    normed,
)
from dr_q.networks.convolutions import conv_features
from dr_q.networks.encoder import conv_sizes
from dr_q.networks.norm import ACTIVATIONS, elu, norm_backward, norm_forward
from dr_q.spaces import SINGLE, ContinuousActions, Image, ObsSpec, Spaces


def unit_box(size: int) -> ContinuousActions:
    return ContinuousActions((-1.0,) * size, (1.0,) * size)


VECTOR = Spaces(ObsSpec.vector(67), unit_box(21))
PIXELS = Spaces(ObsSpec.image(3, 84, 84, stack=3), unit_box(6))
SMALL = Spaces(ObsSpec.image(3, 36, 36, stack=3), unit_box(6))


def sizes(config: Config, spaces: Spaces) -> dict[str, tuple[int, ...]]:
    networks = jax.eval_shape(lambda key: init_networks(config, spaces, key), jax.random.key(0))
    return {jax.tree_util.keystr(path): x.shape for path, x in jax.tree.leaves_with_path(networks)}


STORED = 752
"""750 in whole 64-byte lines."""


def test_vector_networks_have_the_papers_sizes():
    assert sizes(Config(), VECTOR) == {
        ".encoder.state.branches['obs'].mlp.hidden1.weight": (STORED, 72),  # 67
        ".encoder.state.branches['obs'].mlp.hidden1.bias": (STORED,),
        ".encoder.state.branches['obs'].mlp.hidden2.weight": (STORED, STORED),
        ".encoder.state.branches['obs'].mlp.hidden2.bias": (STORED,),
        ".encoder.state.branches['obs'].mlp.output.weight": (512, STORED),
        ".encoder.state.branches['obs'].mlp.output.bias": (512,),
        ".encoder.state_action.embed_action.weight": (256, 24),  # 21
        ".encoder.state_action.embed_action.bias": (256,),
        ".encoder.state_action.from_state.weight": (STORED, 512),
        ".encoder.state_action.from_state.bias": (STORED,),
        ".encoder.state_action.from_action": (STORED, 256),
        ".encoder.state_action.hidden2.weight": (STORED, STORED),
        ".encoder.state_action.hidden2.bias": (STORED,),
        ".encoder.state_action.output.weight": (512, STORED),
        ".encoder.state_action.output.bias": (512,),
        ".encoder.predictor.next_state.weight": (512, 512),
        ".encoder.predictor.next_state.bias": (512,),
        ".encoder.predictor.outcome.weight": (80, 512),  # 65
        ".encoder.predictor.outcome.bias": (80,),
        ".actor.mlp.hidden1.weight": (512, 512),
        ".actor.mlp.hidden1.bias": (512,),
        ".actor.mlp.hidden2.weight": (512, 512),
        ".actor.mlp.hidden2.bias": (512,),
        ".actor.mlp.output.weight": (21, 512),
        ".actor.mlp.output.bias": (21,),
        ".critic.stacked.mlp.hidden1.weight": (2, 512, 512),
        ".critic.stacked.mlp.hidden1.bias": (2, 512),
        ".critic.stacked.mlp.hidden2.weight": (2, 512, 512),
        ".critic.stacked.mlp.hidden2.bias": (2, 512),
        ".critic.stacked.mlp.output.weight": (2, 512, 512),
        ".critic.stacked.mlp.output.bias": (2, 512),
        ".critic.stacked.output.weight": (2, 1, 512),
        ".critic.stacked.output.bias": (2, 1),
    }
    networks = jax.eval_shape(lambda key: init_networks(Config(), VECTOR, key), jax.random.key(0))
    assert networks.encoder.state.branches[SINGLE].mlp.width == networks.encoder.state_action.width == 750
    assert (networks.encoder.predictor.reward_bins, networks.encoder.predictor.predict_done) == (65, False)


def test_pixel_encoder_has_the_papers_sizes():
    found = sizes(Config(), PIXELS)
    assert found[".encoder.state.branches['obs'].linear.weight"] == (512, 1568)
    assert [found[f".encoder.state.branches['obs'].convs[{i}].weight"] for i in range(4)] == [(32, 9, 3, 3)] + 3 * [
        (32, 32, 3, 3)
    ]
    part = PIXELS.obs[SINGLE]
    assert isinstance(part, Image)
    assert conv_outputs(part) == 32 * (41**2 + 20**2 + 9**2 + 7**2)


def test_mrq_has_one_more_output_and_its_own_hidden_size():
    networks = jax.eval_shape(lambda key: init_networks(preset("mr.q"), VECTOR, key), jax.random.key(0))
    assert networks.encoder.predictor.predict_done
    assert networks.encoder.state.branches[SINGLE].mlp.hidden2.weight.shape == (512, 512)


def plain(layers: list[Linear], x, activation):
    """Layers of their true sizes, the textbook way: norm and activation between, none after the last."""
    for layer in layers[:-1]:
        y = x @ layer.weight.T + layer.bias[None]
        y = (y - y.mean(1, keepdims=True)) / jnp.sqrt(y.var(1, keepdims=True) + 1e-5)
        x = activation(y)
    return x @ layers[-1].weight.T + layers[-1].bias[None]


def test_padding_changes_no_value_and_padded_weights_get_no_gradient():
    keys = jax.random.split(jax.random.key(0), 3)
    layers = [Linear.init(key, n_in, n_out) for key, n_in, n_out in zip(keys, (5, 70, 70), (70, 70, 9), strict=True)]
    layers = [Linear(layer.weight, jnp.linspace(-0.3, 0.4, layer.bias.size)) for layer in layers]
    first, second, last = layers
    mlp = MLP.from_layers(first, second, last, "elu")
    assert (mlp.width, mlp.hidden2.weight.shape) == (70, (80, 80))
    x = jax.random.normal(jax.random.key(1), (16, 5))
    np.testing.assert_allclose(mlp(x), plain(layers, x, elu), rtol=1e-5, atol=1e-5)

    def loss(network, call):
        return jnp.sum(jnp.sin(call(network)))

    gradient = jax.grad(loss)(mlp, lambda m: m(x))
    expected = jax.grad(loss)(layers, lambda parts: plain(parts, x, elu))
    for ours, theirs in zip((gradient.hidden1, gradient.hidden2, gradient.output), expected, strict=True):
        rows, columns = theirs.weight.shape
        scale = np.abs(theirs.weight).max()
        np.testing.assert_allclose(ours.weight[:rows, :columns], theirs.weight, atol=1e-5 * scale)
        assert not np.asarray(ours.weight)[rows:].any()
        assert not np.asarray(ours.weight)[:, columns:].any()
        assert not np.asarray(ours.bias)[rows:].any()


@pytest.mark.parametrize("activation", ["elu", "relu"])
def test_the_norms_gradient_is_that_of_automatic_differentiation(activation):
    true_entry = jnp.broadcast_to(jnp.arange(24) < 20, (8, 24))
    x = 3 * jax.random.normal(jax.random.key(0), (8, 24)) * true_entry
    weight = jax.random.normal(jax.random.key(1), (8, 24))

    def automatic(x):
        centred = (x - x.sum(1, keepdims=True) / 20) * true_entry
        y = centred / jnp.sqrt(jnp.square(centred).sum(1, keepdims=True) / 20 + 1e-5)
        return jnp.sum(weight * {"elu": jax.nn.elu, "relu": jax.nn.relu}[activation](y))

    def ours(x):
        return jnp.sum(weight * normed(x, jnp.zeros(24), activation, 20))

    np.testing.assert_allclose(ours(x), automatic(x), rtol=1e-5)
    gradient = np.asarray(jax.grad(ours)(x))
    np.testing.assert_allclose(gradient[:, :20], jax.grad(automatic)(x)[:, :20], atol=1e-5)
    assert not gradient[:, 20:].any(), "what is padding stays 0"


@pytest.mark.parametrize("activation", ["elu", "relu"])
@pytest.mark.parametrize("one_row", [True, False])
def test_the_gpu_kernels_compute_the_same(activation, one_row):
    """In Pallas's interpreter, for a stack of seeds as training has it."""
    shape, width = (3, 8, 24), 20
    x, other, gradient = (
        jax.random.normal(jax.random.key(i), shape) * (jnp.arange(24) < width).reshape(1, 1, -1) for i in range(3)
    )
    plus = other[:, 0] if one_row else other
    out, residuals = jax.vmap(lambda x, plus: norm_forward(x, plus, activation, width))(x, plus)
    in_kernel = jax.vmap(lambda x, plus: norm_kernel.forward(x, plus, activation, width, interpret=True))(x, plus)
    for ours, expected in zip(in_kernel, (out, *residuals), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    expected = jax.vmap(lambda residuals, g: norm_backward(residuals, g, activation, width))(residuals, gradient)
    back = jax.vmap(
        lambda residuals, g: norm_kernel.backward(
            residuals.normal, residuals.factor, g, activation, width, interpret=True
        )
    )(residuals, gradient)
    np.testing.assert_allclose(back, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("platform", "kernels"), [("cpu", 0), ("cuda", 2)])
def test_the_norm_is_chosen_for_the_device_in_use_not_for_the_default_one(platform, kernels, monkeypatch):
    """As where a GPU is the default device and a program is compiled for the CPU, or the other way round."""
    monkeypatch.setattr("dr_q.networks.norm.has_cuda", lambda: True)
    x = jnp.ones((4, 256))
    step = jax.jit(jax.value_and_grad(lambda x: jnp.sum(normed(x, jnp.zeros(256), "elu", 256))))
    lowered = step.trace(x).lower(lowering_platforms=(platform,)).as_text()
    assert lowered.count("triton_kernel_call") + lowered.count("__gpu$xla.gpu.triton") == kernels


def test_weights_are_xavier_uniform_and_biases_zero():
    networks = init_networks(Config(encoder_hidden=208), VECTOR, jax.random.key(0))  # not padded
    branch = networks.encoder.state.branches[SINGLE]
    assert isinstance(branch, VectorBranch)
    weight = np.asarray(branch.mlp.hidden2.weight)
    limit = np.sqrt(2) * np.sqrt(6 / 416)
    assert np.abs(weight).max() <= limit
    assert np.abs(weight).max() > 0.99 * limit
    np.testing.assert_allclose(weight.std(), limit / np.sqrt(3), rtol=0.02)
    for path, leaf in jax.tree.leaves_with_path(networks):
        if jax.tree_util.keystr(path).endswith(".bias"):
            assert not np.asarray(leaf).any()
    # g's first layer is one matrix kept in two parts: both have the bound of the whole.
    whole = np.sqrt(2) * np.sqrt(6 / (512 + 256 + 208))
    for part in (networks.encoder.state_action.from_state.weight, networks.encoder.state_action.from_action):
        assert 0.99 * whole < np.abs(np.asarray(part)).max() <= whole


def test_twin_critics_differ():
    critic = init_networks(Config(critic_hidden=16), VECTOR, jax.random.key(0)).critic
    q = critic(jax.random.normal(jax.random.key(1), (5, 512)))
    assert q.shape == (5, 2)
    assert not np.allclose(q[:, 0], q[:, 1])


def test_z_sa_by_halves_is_the_mlp_of_the_concatenation():
    encoder: Encoder = init_networks(Config(), VECTOR, jax.random.key(0)).encoder
    g = encoder.state_action
    z_s, action = jax.random.normal(jax.random.key(1), (3, 512)), jnp.ones((3, 21)) * 0.3
    first = Linear(jnp.concatenate([g.from_state.weight, g.from_action], axis=1), g.from_state.bias)
    z_a = elu(g.embed_action(jnp.pad(action, ((0, 0), (0, 3)))))
    y = first.normed(jnp.concatenate([z_s, z_a], axis=1), "elu", 750)
    expected = g.output(g.hidden2.normed(y, "elu", 750))
    np.testing.assert_allclose(encoder.z_sa(z_s, action), expected, rtol=1e-4, atol=1e-5)


def test_elu_and_its_slope():
    x = jnp.asarray([-20.0, -1.0, -1e-3, 0.0, 1e-3, 2.0])
    np.testing.assert_allclose(elu(x), jax.nn.elu(x), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(elu))(x), jax.vmap(jax.grad(jax.nn.elu))(x), rtol=1e-6, atol=1e-8)


def test_missing_torch_array_is_named():
    with pytest.raises(KeyError, match=r"no array 'policy\.l1\.weight' among the PyTorch weights; got none"):
        actor_from_torch({})


@functools.partial(jax.jit, static_argnums=0)
def small_encoder(activation, key) -> ImageBranch:
    config = dataclasses.replace(Config(), encoder_activation=activation, zs_dim=8, zsa_dim=8, encoder_hidden=8)
    branch = init_networks(config, SMALL, key).encoder.state.branches[SINGLE]
    assert isinstance(branch, ImageBranch)
    return branch


def plain_features(encoder, obs):
    """f of images up to its last layer, in the obvious way."""
    x = obs.astype(jnp.float32) / 255 - 0.5
    for conv in encoder.convs:
        x = ACTIVATIONS[encoder.activation](conv(x))
    return x


@pytest.mark.parametrize("activation", ["elu", "relu"])
def test_convolutions_of_stacked_seeds_are_each_seeds_own(activation):
    """Values and gradients agree with the plain way, and no seed's channels become a group of another's convolution."""
    encoders = jax.vmap(functools.partial(small_encoder, activation))(jax.random.split(jax.random.key(0), 3))
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 2, *SMALL.obs[SINGLE].shape)), jnp.uint8)
    weights = jax.random.normal(jax.random.key(1), (2, 32, 1, 1))

    def both(features):
        def loss(encoder, obs):
            return jnp.sum(features(encoder, obs) * weights)

        return jax.vmap(jax.value_and_grad(loss))

    ours = both(lambda encoder, obs: conv_features(encoder.activation, encoder.convs, obs))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-3),
        jax.jit(ours)(encoders, obs),
        jax.jit(both(plain_features))(encoders, obs),
    )
    groups = re.findall(r"feature_group_count=(\d+)|batch_group_count=(\d+)", str(jax.make_jaxpr(ours)(encoders, obs)))
    assert groups
    assert {n for pair in groups for n in pair if n} == {"1"}
    grouped = re.findall(r"feature_group_count=(\d+)", str(jax.make_jaxpr(both(plain_features))(encoders, obs)))
    assert "3" in grouped  # what vmap does by itself, so that the check above can fail


def test_the_smallest_image_is_the_smallest_that_the_convolutions_take():
    def last(size: int) -> tuple[int, int]:
        return conv_sizes(Image(3, size, size))[-1]

    assert last(SMALLEST_IMAGE) == (1, 1)
    assert last(SMALLEST_IMAGE - 1) == (0, 0)
