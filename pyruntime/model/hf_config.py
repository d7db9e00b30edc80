"""What a Hugging Face model's config.json says about its shape, checked.

What is read, and the default of what is missing, are those of the reference's (transformers') configuration class for the
architecture. Settings that this class reads and the forward pass does not do are refused by name; settings that it does
not read change nothing there, and nothing here.

Both forms of the rotary settings are read: `rope_theta` with `rope_scaling`, and `rope_parameters` of transformers 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyruntime.errors import FormatError, shorten
from pyruntime.formats.strict_json import parse_json
from pyruntime.model.config import ARCHITECTURES, LARGEST_FACTOR, MAX_HEAD, THETA_INTERVAL, ModelConfig
from pyruntime.model.config_fields import Fields
from pyruntime.model.rope import LinearScaling, Llama3Scaling, RopeScaling, YarnScaling, yarn_attention_factor

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 1 << 20
_MAX_DEPTH = 32

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_LAYERS = ("full_attention", "sliding_attention")
_LONGEST_CONTEXT = 1 << 24


def parse_config(data: bytes, name: str) -> dict[str, Any]:
    """The settings in a config.json; FormatError when it is not an object in strict JSON."""
    parsed = parse_json(data, name=name, max_bytes=MAX_BYTES, max_depth=_MAX_DEPTH)
    if not isinstance(parsed, dict):
        raise FormatError(name, "JSON", shorten(parsed), allowed="an object")
    return parsed


def config_from_json(settings: dict[str, Any], name: str) -> ModelConfig:
    """The configuration of the model with these settings.

    Args:
        settings: from `parse_config`.
        name: the file's name, for errors.

    Raises:
        UnsupportedError: the architecture, or a setting that changes the mathematics, is not supported.
        FormatError: a setting is missing, of the wrong type, out of its interval, or contradicts another.
    """
    fields = Fields(settings, "", name)
    architecture = _architecture(fields)
    _refuse_unsupported(fields, architecture)
    n_heads = fields.integer("num_attention_heads", 1, 1024)
    own_default = n_heads if architecture == "llama" or "num_key_value_heads" in settings else None
    n_kv_heads = fields.integer("num_key_value_heads", 1, n_heads, default=own_default)
    if n_heads % n_kv_heads:
        fields.fail("num_key_value_heads", f"{n_kv_heads} does not divide the {n_heads} query heads")
    hidden = fields.integer("hidden_size", 1, 1 << 16)
    n_layers = fields.integer("num_hidden_layers", 1, 1024)
    context_length = fields.integer("max_position_embeddings", 1, _LONGEST_CONTEXT)
    if architecture != "llama":
        _refuse_windows(fields, n_layers, context_length)
    theta, scaling = _rope(fields, context_length)
    # Published rows rotate halves; only the converters of GGUF files reorder those of llama.
    traits = vars(ARCHITECTURES[architecture]) | {"rope_layout": "half"}
    return ModelConfig(
        architecture=architecture,
        n_layers=n_layers,
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_size=_head_size(fields, architecture, hidden, n_heads),
        ffn=fields.integer("intermediate_size", 1, 1 << 20),
        vocab_size=fields.integer("vocab_size", 1, 1 << 24),
        context_length=context_length,
        rope_theta=theta,
        norm_eps=fields.number("rms_norm_eps", 0.0, 0.1, default=1e-6),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        rope_scaling=scaling,
        **traits,
    )


def _architecture(fields: Fields) -> str:
    """Our name of the architecture, from the class and the type of model, which must say the same."""
    classes = fields.any("architectures")
    kind = fields.any("model_type")
    known, allowed = list(_CLASSES.values()), ", ".join(_CLASSES.values())
    if classes is None and kind is None:
        fields.fail("architectures", "missing", allowed=allowed)
    if classes is None:
        if not isinstance(kind, str) or kind not in _CLASSES:
            fields.refuse("model_type", f"{shorten(kind)} is not supported", allowed=", ".join(_CLASSES))
        return kind
    if not isinstance(classes, list) or len(classes) != 1 or classes[0] not in known:
        fields.refuse("architectures", f"{shorten(classes)} is not supported", allowed=allowed)
    architecture = list(_CLASSES)[known.index(classes[0])]
    if kind not in (None, architecture):
        fields.fail("model_type", f"{shorten(kind)} while the architecture is {classes[0]}", allowed=architecture)
    return architecture


def _refuse_unsupported(fields: Fields, architecture: str) -> None:
    """Refuse what the reference's class would do and the forward pass does not."""
    fields.expect("hidden_act", "silu")
    fields.expect("quantization_config")
    if architecture in {"llama", "qwen3"}:
        fields.expect("attention_bias", False)
    if architecture == "llama":
        fields.expect("mlp_bias", False)


def _head_size(fields: Fields, architecture: str, hidden: int, n_heads: int) -> int:
    """Values per head: said outright, or the architecture's own, or the hidden width divided among the heads."""
    default = 128 if architecture == "qwen3" else hidden // n_heads
    if "head_dim" not in fields and architecture != "qwen3" and hidden % n_heads:
        fields.fail("num_attention_heads", f"{n_heads} heads do not divide the hidden width {hidden}")
    size = fields.integer("head_dim", 1, MAX_HEAD, default=default)
    if size % 2:
        fields.fail("head_dim", f"{size} is odd", allowed="an even number: values are rotated in pairs")
    return size


def _refuse_windows(fields: Fields, n_layers: int, context_length: int) -> None:
    """Refuse a layer whose attention would not reach back over the whole context."""
    is_used = fields.flag("use_sliding_window", default=False)
    window = fields.integer("sliding_window", 0, 1 << 31, default=4096) if is_used else 0
    kinds = fields.any("layer_types")
    if kinds is None:
        key = "use_sliding_window"
        slides = is_used and fields.integer("max_window_layers", 0, 1 << 31, default=28) < n_layers
    else:
        if not isinstance(kinds, list) or len(kinds) != n_layers or not all(kind in _LAYERS for kind in kinds):
            allowed = f"{n_layers} of {' or '.join(_LAYERS)}"
            fields.refuse("layer_types", f"{shorten(kinds)} is not supported", allowed=allowed)
        key, slides = "layer_types", "sliding_attention" in kinds
    if slides and window < context_length:
        problem = f"layers with a sliding window of {window} positions, in a context of {context_length}"
        fields.refuse(key, problem, allowed="attention over the whole context")


def _rope(fields: Fields, context_length: int) -> tuple[float, RopeScaling | None]:
    """The base of the rotary frequencies, and how they are scaled."""
    fields.expect("partial_rotary_factor", 1)
    given = fields.group("rope_scaling" if fields.any("rope_scaling") else "rope_parameters")
    given.expect("partial_rotary_factor", 1)
    for kind_of_layer in _LAYERS:  # rotary settings may be given for each kind of layer apart
        given.expect(kind_of_layer)
    theta = fields.number("rope_theta", *THETA_INTERVAL, default=10_000.0)
    theta = given.number("rope_theta", *THETA_INTERVAL, default=theta)
    name = "rope_type" if "rope_type" in given else "type"
    kind = given.any(name) or "default"
    if kind == "default":
        return theta, None
    if not isinstance(kind, str) or kind not in _SCALINGS:
        given.refuse(name, f"{shorten(kind)} is not supported", allowed=", ".join(("default", *_SCALINGS)))
    # Some models have it beside the group, where it comes first.
    first = fields.integer("original_max_position_embeddings", 1, _LONGEST_CONTEXT, default=context_length)
    if "original_max_position_embeddings" not in fields:
        first = given.integer("original_max_position_embeddings", 1, _LONGEST_CONTEXT, default=first)
    return theta, _SCALINGS[kind](given, first, context_length)


def _linear(given: Fields, _first: int, _context: int) -> LinearScaling:
    return LinearScaling(_factor(given))


def _llama3(given: Fields, first: int, _context: int) -> Llama3Scaling:
    low = given.number("low_freq_factor", 1e-3, 1e6)
    high = given.number("high_freq_factor", 1e-3, 1e6)
    if high <= low:
        given.fail("high_freq_factor", f"{high:g} is not above low_freq_factor, {low:g}")
    return Llama3Scaling(_factor(given), low, high, first)


def _yarn(given: Fields, first: int, context: int) -> YarnScaling:
    factor = _factor(given, default=max(1.0, context / first))
    scale, scale_all = given.any("mscale"), given.any("mscale_all_dim")
    if scale and scale_all:
        scales = given.number("mscale", 0.0, 1e3), given.number("mscale_all_dim", 0.0, 1e3)
        usual = yarn_attention_factor(factor, scales[0]) / yarn_attention_factor(factor, scales[1])
    else:
        usual = yarn_attention_factor(factor)
    slow = given.number("beta_slow", 1e-3, 1e6, default=1.0)
    return YarnScaling(
        factor=factor,
        original_context=first,
        attention_factor=given.number("attention_factor", 1e-3, 1e3, default=usual),
        beta_fast=given.number("beta_fast", slow, 1e6, default=max(32.0, slow)),
        beta_slow=slow,
        truncate=given.flag("truncate", default=True),
    )


def _factor(given: Fields, default: float | None = None) -> float:
    return given.number("factor", 1.0, LARGEST_FACTOR, default=default)


_SCALINGS: dict[str, Callable[[Fields, int, int], RopeScaling]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
