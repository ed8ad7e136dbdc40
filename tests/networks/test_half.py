"""Products, norms and convolutions with 16-bit operands, next to the plain formulas."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q.equations import StoredImages, random_shift, random_shifts
from dr_q.networks import HalfWeight, norm_kernel, pack_kernel, product
from dr_q.networks.convolutions import conv_features
from dr_q.networks.layers import Conv
from dr_q.networks.norm import NormTypes, norm_backward, norm_forward, normed
from dr_q.networks.pack import SCALE, pack_plain
from dr_q.networks.packed_convolutions import packed_conv_features

HALF = NormTypes("float16", "float16", "bfloat16")


def relative(ours, expected) -> float:
    """Distance as a part of the length."""
    ours, expected = np.asarray(ours, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(ours - expected) / np.linalg.norm(expected))


def test_a_product_rounds_its_operands_and_learns_its_float32_weight():
    x, weight, direction = (
        jax.random.normal(jax.random.key(i), size) for i, size in enumerate([(5, 64), (32, 64), (5, 32)])
    )

    def loss(x, weight, half):
        return jnp.sum(direction * product(x, HalfWeight.of(weight) if half else weight))

    value = product(x, HalfWeight.of(weight))
    assert value.dtype == jnp.float32
    assert 1e-6 < relative(value, product(x, weight)) < 1e-3, "rounded as float16"
    ours, plain = (jax.grad(loss, argnums=(0, 1))(x, weight, half) for half in (True, False))
    for gradient, expected in zip(ours, plain, strict=True):
        assert gradient.dtype == jnp.float32
        assert 1e-4 < relative(gradient, expected) < 1e-2, "rounded as bfloat16"


def test_small_gradients_are_not_lost():
    """Float16 would make 0 of them."""
    x, weight = jnp.ones((2, 8)), jnp.ones((4, 8))
    gradient = jax.grad(lambda w: 1e-12 * jnp.sum(product(x, HalfWeight.of(w))))(weight)
    np.testing.assert_allclose(gradient, 2e-12, rtol=1e-2)


@pytest.mark.parametrize("one_row", [True, False])
def test_the_norm_kernels_round_as_the_formulas(one_row):
    shape, width = (3, 8, 24), 20
    x, other, gradient = (
        jax.random.normal(jax.random.key(i), shape) * (jnp.arange(24) < width).reshape(1, 1, -1) for i in range(3)
    )
    plus = other[:, 0] if one_row else other
    forward = functools.partial(norm_kernel.forward, activation="elu", width=width, types=HALF, interpret=True)
    out, residuals = jax.vmap(lambda x, plus: norm_forward(x, plus, "elu", width, HALF))(x, plus)
    in_kernel = jax.vmap(forward)(x, plus)
    assert [y.dtype.name for y in in_kernel] == ["float16", "float16", "float32"]
    for ours, expected in zip(in_kernel, (out, *residuals), strict=True):
        np.testing.assert_allclose(ours.astype(jnp.float32), expected.astype(jnp.float32), rtol=1e-3, atol=1e-5)
    backward = functools.partial(norm_kernel.backward, activation="elu", width=width, types=HALF, interpret=True)
    back = jax.vmap(lambda residuals, g: backward(residuals.normal, residuals.factor, g))(residuals, gradient)
    assert back.dtype == jnp.bfloat16
    expected = jax.vmap(lambda residuals, g: norm_backward(residuals, g, "elu", width, HALF))(residuals, gradient)
    np.testing.assert_allclose(back.astype(jnp.float32), expected, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("types", [NormTypes(), HALF])
def test_a_norm_without_gradient_gives_the_same_result(types):
    x, plus = jax.random.normal(jax.random.key(0), (8, 24)), jax.random.normal(jax.random.key(1), (24,))
    alone = norm_kernel.output(x, plus, "elu", 24, types, interpret=True)
    kept, *_ = norm_kernel.forward(x, plus, "elu", 24, types, interpret=True)
    np.testing.assert_array_equal(alone, kept)
    np.testing.assert_array_equal(
        normed(x, plus, "elu", 24, types), jax.vjp(lambda x: normed(x, plus, "elu", 24, types), x)[0]
    )


def stored_images(seeds: int | None = None) -> StoredImages:
    rng = np.random.default_rng(0)
    lead = () if seeds is None else (seeds,)
    return StoredImages(
        jnp.asarray(rng.integers(0, 256, (*lead, 7, 3, 40, 36), np.uint8)),
        jnp.asarray(rng.integers(0, 7, (*lead, 4, 3)), jnp.int32),
        jnp.asarray(rng.integers(-4, 5, (*lead, 4, 2)), jnp.int32),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_pack_kernel_is_the_plain_formula(dtype):
    """Exactly: every byte has its own value in 16 bits, too."""
    images = stored_images()
    plain = pack_plain(images.read(), dtype)
    np.testing.assert_array_equal(pack_kernel.pack(images, dtype, interpret=True), plain)
    scaled = SCALE * plain[..., :9].astype(jnp.float32).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(scaled, images.read().astype(jnp.float32) / 255 - 0.5, atol=1e-6)
    assert not plain[..., 9:].any()


def test_stored_images_shift_as_arrays_do():
    images, key = stored_images(), jax.random.key(3)
    shifts = jnp.concatenate(random_shifts(key, 4, 4), axis=1)
    still = images._replace(shifts=jnp.zeros_like(images.shifts)).read()
    np.testing.assert_array_equal(images._replace(shifts=shifts).read(), random_shift(still, key, 4))


@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-5), (True, 2e-2)])
def test_packed_convolutions_are_the_plain_ones(half, tolerance):
    """Values and gradients of stacked seeds, whose frames stay in one array."""
    strides, seeds = (2, 2), 3

    def init(key):
        keys = jax.random.split(key, 2)
        return tuple(Conv.init(k, n, 32, stride) for k, n, stride in zip(keys, (9, 32), strides, strict=True))

    convs = jax.vmap(init)(jax.random.split(jax.random.key(0), seeds))
    images = stored_images(seeds)
    weights = jax.random.normal(jax.random.key(1), (4, 32, 9, 8))

    def ours(convs, images):
        if half:
            convs = tuple(dataclasses.replace(conv, weight=HalfWeight.of(conv.weight)) for conv in convs)
        return packed_conv_features("elu", convs, images)

    def both(features):
        def loss(convs, images):
            out = features(convs, images)
            return jnp.sum(out * weights), out

        return jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))

    gradient, out = both(ours)(convs, images)
    expected, plain = both(lambda convs, images: conv_features("elu", convs, images.read()))(convs, images)
    assert relative(out, plain) < min(tolerance, 2e-3)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        assert one.dtype == jnp.float32
        assert relative(one, other) < tolerance
