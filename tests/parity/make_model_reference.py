"""Reference logits by transformers in float32, written to `data/`; the tests compare the runtime with them.

    python -m tests.parity.make_model_reference                       the random models of random_models.py
    python -m tests.parity.make_model_reference --smollm2 MODEL.gguf  SmolLM2-135M's dequantised weights on our texts
    python -m tests.parity.make_model_reference --rope                rotary frequencies of every kind of scaling

Needs the extra `reference`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.weights.names import hf_name
from tests.parity.random_models import MODELS, RandomModel, digest, hf_config, weights
from tests.parity.reference_tokenizer import reference_tokenizer
from tests.parity.rope_cases import CASES as ROPE_CASES
from tests.parity.texts import CHATS, TEXTS

DATA = Path(__file__).parent / "data"
GREEDY_TOKENS = 32
_TOP = 10


def hf_model(model: RandomModel, arrays: dict[str, np.ndarray]) -> torch.nn.Module:
    """The transformers model of the same shape with the same weights."""
    config = model.config
    settings = hf_config(config)
    made = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(settings.pop("model_type"), **settings),
        dtype=torch.float32,
        attn_implementation="eager",
    )
    state = {hf_name(name): torch.from_numpy(array) for name, array in arrays.items()}
    missing, unexpected = made.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tied_embeddings else set()), missing
    return made.eval()


def numbers(values: np.ndarray) -> list[float]:
    """float32 values as the shortest decimals that give them back."""
    return [float(str(np.float32(value))) for value in values]


def random_reference() -> dict:
    rows = {}
    for name, model in MODELS.items():
        arrays = weights(model)
        with torch.no_grad():
            logits = hf_model(model, arrays)(torch.tensor([model.ids])).logits[0].numpy()
        compared = [numbers(logits[position]) for position in model.compared_positions()]
        rows[name] = {"weights_sha256": digest(arrays), "logits": compared}
    return {"models": rows}


def rope_reference() -> dict:
    """The frequencies and the stretch that transformers computes for the cases of `rope_cases.py`."""
    rows = {}
    for name, case in ROPE_CASES.items():
        config = transformers.LlamaConfig(
            hidden_size=2 * case.head_size,
            num_attention_heads=2,
            head_dim=case.head_size,
            max_position_embeddings=case.context,
            rope_parameters=dict(case.parameters),
        )
        found, stretch = ROPE_INIT_FUNCTIONS[case.parameters["rope_type"]](config)
        rows[name] = {"frequencies": numbers(found.numpy()), "stretch": stretch}
    return {"cases": rows}


def smollm2_reference(path: Path) -> dict:
    metadata = run_without_waiting(read_gguf(FileSource(path))).metadata
    tokenizer = reference_tokenizer(metadata, control=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    cases = []
    for text, n_greedy in [*((text, 0) for text in TEXTS), *((chat, GREEDY_TOKENS) for chat in CHATS)]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        n_prompt = len(ids)
        with torch.no_grad():
            for _ in range(n_greedy):
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            logits = model(torch.tensor([ids])).logits[0]
        top = logits.topk(_TOP)
        cases.append(
            {
                "text": text,
                "ids": ids,
                "prompt_length": n_prompt,  # what follows is the greedy continuation
                "top_ids": top.indices.tolist(),
                "top_logits": [numbers(row) for row in top.values.numpy()],
                "logsumexp": numbers(logits.logsumexp(-1).numpy()),
            }
        )
    return {"model": path.name, "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "cases": cases}


def write(name: str, content: dict) -> None:
    provenance = {
        "made_by": "python -m tests.parity.make_model_reference",
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "computed_in": "float32, attn_implementation=eager",
    }
    path = DATA / name
    path.write_text(json.dumps(provenance | content, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm2", type=Path, metavar="MODEL.gguf", help="make this model's reference instead")
    parser.add_argument("--rope", action="store_true", help="compute rotary frequencies instead")
    arguments = parser.parse_args()
    if arguments.rope:
        write("rope_frequencies.json", rope_reference())
    elif arguments.smollm2:
        write("smollm2_logits.json", smollm2_reference(arguments.smollm2))
    else:
        write("random_models.json", random_reference())


if __name__ == "__main__":
    main()
