import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q.agent import Config, TaskShape, init_networks, preset
from dr_q.networks import Encoder, Linear, VectorStateEncoder, actor_from_torch
from dr_q.networks.layers import elu, layer_norm

VECTOR = TaskShape((67,), 21)
PIXELS = TaskShape((9, 84, 84), 6, history=3)


def sizes(config: Config, shape: TaskShape) -> dict[str, tuple[int, ...]]:
    networks = jax.eval_shape(lambda key: init_networks(config, shape, key), jax.random.key(0))
    return {jax.tree_util.keystr(path): x.shape for path, x in jax.tree.leaves_with_path(networks)}


def test_vector_networks_have_the_papers_sizes():
    assert sizes(Config(), VECTOR) == {
        ".encoder.state.mlp.hidden1.weight": (67, 750),
        ".encoder.state.mlp.hidden1.bias": (750,),
        ".encoder.state.mlp.hidden2.weight": (750, 750),
        ".encoder.state.mlp.hidden2.bias": (750,),
        ".encoder.state.mlp.output.weight": (750, 512),
        ".encoder.state.mlp.output.bias": (512,),
        ".encoder.state_action.embed_action.weight": (21, 256),
        ".encoder.state_action.embed_action.bias": (256,),
        ".encoder.state_action.from_state.weight": (512, 750),
        ".encoder.state_action.from_state.bias": (750,),
        ".encoder.state_action.from_action": (256, 750),
        ".encoder.state_action.hidden2.weight": (750, 750),
        ".encoder.state_action.hidden2.bias": (750,),
        ".encoder.state_action.output.weight": (750, 512),
        ".encoder.state_action.output.bias": (512,),
        ".encoder.predictor.weight": (512, 512 + 65),
        ".encoder.predictor.bias": (512 + 65,),
        ".actor.mlp.hidden1.weight": (512, 512),
        ".actor.mlp.hidden1.bias": (512,),
        ".actor.mlp.hidden2.weight": (512, 512),
        ".actor.mlp.hidden2.bias": (512,),
        ".actor.mlp.output.weight": (512, 21),
        ".actor.mlp.output.bias": (21,),
        ".critic.stacked.mlp.hidden1.weight": (2, 512, 512),
        ".critic.stacked.mlp.hidden1.bias": (2, 512),
        ".critic.stacked.mlp.hidden2.weight": (2, 512, 512),
        ".critic.stacked.mlp.hidden2.bias": (2, 512),
        ".critic.stacked.mlp.output.weight": (2, 512, 512),
        ".critic.stacked.mlp.output.bias": (2, 512),
        ".critic.stacked.output.weight": (2, 512, 1),
        ".critic.stacked.output.bias": (2, 1),
    }


def test_pixel_encoder_has_the_papers_sizes():
    found = sizes(Config(), PIXELS)
    assert found[".encoder.state.linear.weight"] == (1568, 512)
    assert [found[f".encoder.state.convs[{i}].weight"] for i in range(4)] == [(32, 9, 3, 3)] + 3 * [(32, 32, 3, 3)]


def test_mrq_has_one_more_output_and_its_own_hidden_size():
    found = sizes(preset("mr.q"), VECTOR)
    assert found[".encoder.predictor.weight"] == (512, 512 + 65 + 1)
    assert found[".encoder.state.mlp.hidden2.weight"] == (512, 512)


def test_weights_are_xavier_uniform_and_biases_zero():
    networks = init_networks(Config(encoder_hidden=200), VECTOR, jax.random.key(0))
    assert isinstance(networks.encoder.state, VectorStateEncoder)
    weight = np.asarray(networks.encoder.state.mlp.hidden2.weight)
    limit = np.sqrt(2) * np.sqrt(6 / 400)
    assert np.abs(weight).max() <= limit
    assert np.abs(weight).max() > 0.99 * limit
    np.testing.assert_allclose(weight.std(), limit / np.sqrt(3), rtol=0.02)
    for path, leaf in jax.tree.leaves_with_path(networks):
        if jax.tree_util.keystr(path).endswith(".bias"):
            assert not np.asarray(leaf).any()
    # g's first layer is one matrix kept in two parts: both have the bound of the whole.
    whole = np.sqrt(2) * np.sqrt(6 / (512 + 256 + 200))
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
    first = Linear(jnp.concatenate([g.from_state.weight, g.from_action]), g.from_state.bias)
    y = elu(layer_norm(first(jnp.concatenate([z_s, elu(g.embed_action(action))], axis=1))))
    expected = g.output(elu(layer_norm(g.hidden2(y))))
    np.testing.assert_allclose(encoder.z_sa(z_s, action), expected, rtol=1e-4, atol=1e-5)


def test_elu_and_its_slope():
    x = jnp.asarray([-20.0, -1.0, -1e-3, 0.0, 1e-3, 2.0])
    np.testing.assert_allclose(elu(x), jax.nn.elu(x), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(elu))(x), jax.vmap(jax.grad(jax.nn.elu))(x), rtol=1e-6, atol=1e-8)


def test_missing_torch_array_is_named():
    with pytest.raises(KeyError, match=r"no array 'policy\.l1\.weight' among the PyTorch weights; got none"):
        actor_from_torch({})
