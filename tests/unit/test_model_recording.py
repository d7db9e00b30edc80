"""A forward pass can be taken down once, on handles that are mere numbers, and replayed for any run."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.model import families
from pyruntime.model.decoder import Weights
from pyruntime.model.kv_cache import KVCache
from pyruntime.model.numpy_executor import NumpyExecutor
from pyruntime.model.numpy_ops import NumpyOps
from pyruntime.model.numpy_products import BLAS
from tests.parity.random_models import MODELS, weights

OPERATIONS = ("embed", "rms_norm", "linear", "rope", "attention", "silu_mul", "add", "output_rows")
NAMES = [name for name in MODELS if "sizes" not in name]


class Register:
    """A handle that can be named and passed on, and nothing else: no shape, no truth value, no arithmetic."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __bool__(self):
        raise AssertionError("a model file asked a handle for its truth value")


class Recorder:
    """Operations that only take notes: `program` is a list of (operation, arguments, result)."""

    def __init__(self):
        self.program = []

    def __getattr__(self, operation):
        assert operation in OPERATIONS

        def record(*arguments):
            result = Register(f"r{len(self.program)}")
            self.program.append((operation, arguments, result.name))
            return result

        return record


def replay(program, ops, arrays):
    """The last result of the program, with `arrays` for the weights."""
    registers = dict(arrays)
    for operation, arguments, result in program:
        values = [registers[a.name] if isinstance(a, Register) else a for a in arguments]
        registers[result] = getattr(ops, operation)(*values)
    return registers[result]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_forward_pass_gives_the_eager_ones_logits_for_every_run(name):
    config, arrays = MODELS[name].config, weights(MODELS[name])
    recorder = Recorder()
    handles = {weight: Register(weight) for weight in arrays}
    families.forward(config, recorder, Weights.from_names(handles, config.n_layers))

    eager = NumpyExecutor(config, Weights.from_names(arrays, config.n_layers), context=32, file="")
    cache = KVCache(config.n_layers, config.n_kv_heads, config.head_size, 32)
    ops = NumpyOps(config, cache, BLAS, 16)
    for ids in ([1, 2, 3, 4, 5], [6], [7, 8, 9]):
        cache.reserve(len(ids))
        ops.start_run(np.array(ids), slice(None))
        logits = replay(recorder.program, ops, arrays)
        cache.commit(len(ids))
        np.testing.assert_array_equal(logits, eager.forward_all(ids))
