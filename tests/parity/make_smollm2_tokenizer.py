"""Write data/smollm2_tokenizer.json: what the reference makes of the acceptance texts with SmolLM2's tokenizer.

    python -m tests.parity.make_smollm2_tokenizer MODEL.gguf

The reference is rebuilt from the file's own metadata (see reference_tokenizer.py), read by the `gguf` package and
not by the runtime.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import gguf

from tests.parity.acceptance_texts import ACCEPTANCE_TEXTS, whole
from tests.parity.reference_tokenizer import reference_tokenizer

TARGET = Path(__file__).parent / "data" / "smollm2_tokenizer.json"


def reference_cases(model: Path) -> list[dict[str, object]]:
    """Of each text: its ids as typed by a user, as written by a template, and what the first decode to."""
    fields = gguf.GGUFReader(model).fields
    metadata = {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.ggml.")}
    typed, written = (reference_tokenizer(metadata, control=control) for control in (False, True))
    cases = []
    for name, texts in ACCEPTANCE_TEXTS.items():
        for text in texts:
            content = whole(text)
            ids = typed.encode(content, add_special_tokens=False).ids
            case = {"case": name, "text": text, "ids": ids}
            with_control = written.encode(content, add_special_tokens=False).ids
            if with_control != ids:
                case["ids_with_control"] = with_control
            decoded = typed.decode(ids, skip_special_tokens=True)
            if decoded != content:
                case["decoded"] = decoded
            cases.append(case)
    return cases


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    model = parser.parse_args().model
    head = {
        "made_by": "python -m tests.parity.make_smollm2_tokenizer",
        "versions": {name: version(name) for name in ("tokenizers", "gguf")},
        "tokenizer_file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "tokenizer_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
    }
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in reference_cases(model))
    TARGET.write_text(f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n', encoding="ascii")
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
