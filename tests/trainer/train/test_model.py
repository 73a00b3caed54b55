"""The model is causal, starts out knowing nothing, and counts its parameters once."""

import math

import pytest
import torch

from trainer.train.config import Model
from trainer.train.model import GPT, IGNORED, parameter_count, rotary_table, rotate

pytestmark = pytest.mark.torch

SMALL = Model(layers=2, heads=2, width=32, context=16)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(SMALL, 257)


def test_shapes_and_first_loss(model: GPT):
    tokens = torch.randint(0, 257, (3, 17))
    assert model(tokens[:, :-1]).shape == (3, 16, 257)
    loss = model(tokens[:, :-1], tokens[:, 1:]).item() / (3 * 16)
    assert loss == pytest.approx(math.log(257), abs=0.3)


def test_a_token_sees_none_that_follow(model: GPT):
    tokens = torch.randint(0, 257, (1, 16))
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 257
    one, other = model(tokens), model(changed)
    assert torch.allclose(one[:, :10], other[:, :10], atol=1e-6)
    assert not torch.allclose(one[:, 10:], other[:, 10:], atol=1e-3)


def test_the_order_of_earlier_tokens_matters(model: GPT):
    tokens = torch.randint(0, 257, (1, 16))
    swapped = tokens.clone()
    swapped[0, :2] = tokens[0, [1, 0]]
    assert not torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1], atol=1e-6)


def test_rotated_products_depend_on_distance_alone():
    cos, sin = rotary_table(16, 8)
    query, key = torch.randn(8), torch.randn(8)
    queries, keys = rotate(query.expand(16, 8), cos, sin), rotate(key.expand(16, 8), cos, sin)
    assert (queries[5] @ keys[2]).item() == pytest.approx((queries[12] @ keys[9]).item(), abs=1e-5)


def test_ignored_targets_give_neither_loss_nor_gradient(model: GPT):
    tokens = torch.randint(0, 257, (2, 16))
    loss = model(tokens, torch.full_like(tokens, IGNORED))
    loss.backward()
    assert loss.item() == 0
    assert all((weight.grad == 0).all() for weight in model.parameters())


def test_the_parameter_count_is_the_formulas(model: GPT):
    width, layers = SMALL.width, SMALL.layers
    assert parameter_count(model) == 257 * width + layers * (12 * width**2 + 2 * width) + width
