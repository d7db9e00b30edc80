"""Rotary frequencies of every kind of scaling against the reference's (values in `data/`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyruntime.model.hf_config import config_from_json
from pyruntime.model.rope import Rope
from tests.parity.rope_cases import CASES

REFERENCE = json.loads((Path(__file__).parent / "data" / "rope_frequencies.json").read_text(encoding="utf-8"))["cases"]
ONE_ROUNDING = 1.2e-7  # relative; most are the same bits


def settings(case, **rope):
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 10,
        "hidden_size": 2 * case.head_size,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": case.context,
        **rope,
    }


def as_older_versions_write_it(parameters):
    """The same settings in the form of transformers 4."""
    rest = {key: value for key, value in parameters.items() if key not in {"rope_theta", "rope_type"}}
    return {"rope_theta": parameters["rope_theta"], "rope_scaling": {"type": parameters["rope_type"], **rest}}


@pytest.mark.parametrize("name", CASES)
def test_frequencies_and_stretch_equal_the_reference_in_both_forms_of_the_settings(name):
    case, expected = CASES[name], REFERENCE[name]
    for rope in ({"rope_parameters": case.parameters}, as_older_versions_write_it(case.parameters)):
        found = Rope.of(config_from_json(settings(case, **rope), "config.json"))
        np.testing.assert_allclose(found.frequencies, np.array(expected["frequencies"], np.float32), rtol=ONE_ROUNDING)
        assert found.stretch == pytest.approx(expected["stretch"], rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_every_rotation_has_the_length_of_the_stretch(name):
    case = CASES[name]
    rope = Rope.of(config_from_json(settings(case, rope_parameters=case.parameters), "config.json"))
    turned = rope.rotations(5, 3)
    assert turned.shape == (3, case.head_size // 2)
    np.testing.assert_allclose(np.abs(turned), rope.stretch, rtol=1e-6)
    np.testing.assert_allclose(np.angle(turned[0]), np.angle(np.exp(5j * rope.frequencies)), atol=1e-5)
