"""A model folder as Hugging Face models come in: opened, computed, and refused where it is not whole."""

from __future__ import annotations

import asyncio
import hashlib
import json

import numpy as np
import pytest

from pyruntime.cli import main
from pyruntime.delivery.store import MemoryStore
from pyruntime.engine import Engine
from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.events import Finished
from pyruntime.formats.model_files import ModelFiles
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.model import native_executor
from pyruntime.model.kernel_plan import KernelSettings
from pyruntime.model.numpy_executor import build_numpy_executor
from pyruntime.opening import open_model, read_model
from pyruntime.sampling import SamplingParams
from pyruntime.tables_cache import StoredTables
from pyruntime.text import tokenizer_json
from pyruntime.weights import stored
from tests.delivery_fakes import Network, run
from tests.safetensors_writer import safetensors_bytes
from tests.tiny_folder import (
    SHARDS,
    config,
    in_memory,
    sharded,
    tensors,
    tiny_folder,
    with_template_file,
    write_folder,
)
from tests.tiny_model import IM_END, PAD, TEMPLATE, TOOL, VOCAB, tiny_gguf
from tooling import kernels

IDS = list(b"What is the capital of France?")


def as_json(values) -> bytes:
    return json.dumps(values).encode()


def opened(files=None, **changes):
    return run_without_waiting(read_model(in_memory(tiny_folder(**changes) if files is None else files)))


def load(source, **options):
    return asyncio.run(Engine.load(source, executor="numpy", **options))


def chat(engine):
    async def run():
        params = SamplingParams(temperature=0, max_tokens=12)
        return [event async for event in engine.chat([{"role": "user", "content": "Hi"}], params)]

    return next(event for event in asyncio.run(run()) if isinstance(event, Finished))


def test_a_folder_opens_as_the_gguf_file_of_the_same_model():
    folder = opened()
    file = run_without_waiting(read_model(BytesSource(tiny_gguf(), "tiny.gguf")))
    assert folder.tokenizer.control_ids == file.tokenizer.control_ids
    assert folder.tokenizer.special_tokens == file.tokenizer.special_tokens
    assert folder.template.source == file.template.source
    assert (folder.marks, folder.generation) == (file.marks, file.generation)
    assert {key: value for key, value in vars(folder.config).items() if key != "rope_layout"} == {
        key: pytest.approx(value, rel=1e-6) if key == "norm_eps" else value
        for key, value in vars(file.config).items()
        if key != "rope_layout"
    }
    text = "Größe 2024 <|im_end|>\n"
    assert folder.tokenizer.encode(text) == file.tokenizer.encode(text)


def test_a_folder_on_disk_gives_the_logits_of_the_gguf_file_of_the_same_weights(tmp_path):
    folder = load(write_folder(tmp_path / "tiny", tiny_folder()))
    file = load(BytesSource(tiny_gguf(), "tiny.gguf"))
    np.testing.assert_allclose(folder.logits(IDS), file.logits(IDS), rtol=1e-4, atol=1e-4)
    assert chat(folder).text == chat(file).text != ""


def test_weights_in_several_files_are_the_same_as_in_one():
    np.testing.assert_array_equal(load(in_memory(sharded())).logits(IDS), load(in_memory(tiny_folder())).logits(IDS))


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_weights_of_half_the_size_are_read_exactly(dtype):
    logits = load(in_memory(tiny_folder(model__safetensors=safetensors_bytes(tensors(dtype))))).logits(IDS)
    exact = load(in_memory(tiny_folder())).logits(IDS)
    assert 0 < np.abs(logits - exact).max() < 0.5 * np.abs(exact).max()
    assert np.corrcoef(logits.ravel(), exact.ravel())[0, 1] > 0.99


@pytest.fixture(scope="module")
def native():
    kernels.build_native()

    def build(files):
        model = opened(files)
        executor = run_without_waiting(
            native_executor.build(
                model.config, model.weights, context=64, threads=1, settings=KernelSettings(precise=True)
            )
        )
        logits = executor.forward_all(IDS)
        executor.close()
        return logits

    return build


def test_the_kernels_read_a_folder_too_and_keep_its_weights_in_8_bits(native):
    files = tiny_folder(model__safetensors=safetensors_bytes(tensors("BF16")))
    exact, found = load(in_memory(files)).logits(IDS), native(files)
    assert np.corrcoef(found.ravel(), exact.ravel())[0, 1] > 0.995
    assert not np.array_equal(found, exact)
    same_values = {
        name: ("F32", shape, (np.frombuffer(data, "<u2").astype("<u4") << np.uint32(16)).tobytes())
        for name, (_, shape, data) in tensors("BF16").items()
    }
    np.testing.assert_array_equal(found, native(tiny_folder(model__safetensors=safetensors_bytes(same_values))))


def test_the_kernels_read_weights_in_several_files(native):
    np.testing.assert_array_equal(native(sharded()), native(tiny_folder()))


def test_progress_counts_the_bytes_of_every_file(native):
    told = []
    files = in_memory(sharded())
    load(files, on_progress=lambda *step: told.append(step))
    total = sum(len(data) for _, _, data in tensors().values())
    assert told[0] == (0, total)
    assert told[-1] == (total, total)


def test_a_gguf_file_in_a_folder_is_opened(tmp_path):
    write_folder(tmp_path, {"tiny.gguf": tiny_gguf(), "README.md": b"", "config.json": b"{}"})
    assert open_model(tmp_path).name == "Tiny"


def test_a_template_in_a_file_of_its_own_comes_first():
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert opened(with_template_file(template, tiny_folder())).template.source == template


def test_a_folder_without_a_template_opens_and_cannot_chat():
    files = tiny_folder(tokenizer_config__json=as_json({"eos_token": "<|im_end|>"}))
    assert opened(files).template is None
    with pytest.raises(UnsupportedError, match=r"^tiny: chat template: the model has no chat template"):
        load(in_memory(files)).check_can_chat()


def test_a_folder_without_the_files_that_may_be_missing_opens():
    model = opened(generation_config__json=None, tokenizer_config__json=None, README__md=None)
    assert model.generation.stop_ids == {IM_END}, "config.json says it too"


@pytest.mark.parametrize(("declared", "expected"), [(TOOL, {TOOL}), ([TOOL, PAD], {TOOL, PAD}), (None, set())])
def test_every_declared_end_is_one(declared, expected):
    files = tiny_folder(
        generation_config__json=as_json({"eos_token_id": declared}),
        config__json=as_json(config(eos_token_id=None)),
        tokenizer_config__json=as_json({"chat_template": TEMPLATE}),
    )
    assert opened(files).generation.stop_ids == expected | {IM_END}, "with the end of a turn that the template shows"


@pytest.mark.parametrize("value", ["2", [1.0], [True], -1, VOCAB, {}, [[1]]])
@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_an_end_that_is_no_id_is_refused_by_file_and_field(name, value):
    settings = config(eos_token_id=value) if name == "config.json" else {"eos_token_id": value}
    with pytest.raises(FormatError, match=rf"^{name}: eos_token_id: .*allowed: ids from 0 to {VOCAB - 1}"):
        opened(**{name.replace(".", "__"): as_json(settings)})


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named_with_what_a_folder_needs(name):
    with pytest.raises(FormatError) as error:
        opened(**{name.replace(".", "__"): None})
    assert str(error.value) == (
        f"tiny: {name}: the file is missing. A model folder has config.json, tokenizer.json and model.safetensors, or "
        "model.safetensors.index.json and the files it names"
    )


def test_weights_of_another_name_are_not_taken_for_the_models():
    files = tiny_folder(consolidated__safetensors=safetensors_bytes({}), model__safetensors=None)
    with pytest.raises(FormatError, match=r"^tiny: model\.safetensors\.index\.json: the file is missing"):
        opened(files)


@pytest.mark.parametrize("files", [{}, {"pytorch_model.bin": b""}, {"a.gguf": b"", "b.gguf": b""}])
def test_a_folder_without_one_set_of_weights_is_refused(files):
    with pytest.raises(FormatError, match=r"^tiny: files: [02] files end in \.gguf and none in \.safetensors"):
        opened(files)


def test_a_tokenizer_with_more_ids_than_the_model_is_refused():
    with pytest.raises(FormatError, match=r"^tokenizer\.json: model\.vocab: 264 ids while config\.json has .* of 263"):
        opened(config__json=as_json(config(vocab_size=263)))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_json_object_is_refused_by_name(name, content):
    with pytest.raises(FormatError, match=rf"^{name}: "):
        opened(**{name.replace(".", "__"): content})


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja", "tokenizer_config.json"])
def test_a_file_far_too_large_is_refused_before_it_is_read(name):
    class Endless(BytesSource):
        size = 1 << 40

        async def read(self, offset, length):
            raise AssertionError("read")

    files = in_memory(tiny_folder())
    with pytest.raises(FormatError, match=rf"^{name}: size: {1 << 40} bytes"):
        run_without_waiting(read_model(ModelFiles("tiny", {**files.sources, name: Endless(b"", name)})))


def test_a_template_that_is_no_text_is_refused_by_name():
    with pytest.raises(FormatError, match=r"^chat_template\.jinja: text: not UTF-8 at byte 1"):
        opened(tiny_folder() | {"chat_template.jinja": b"a\xff"})


def test_the_tokenizers_tables_are_made_once_and_bound_to_its_file(monkeypatch):
    files = tiny_folder()
    tables = StoredTables(
        MemoryStore(),
        Network({}),
        site="https://page.example/",
        source_sha256=hashlib.sha256(files["tokenizer.json"]).hexdigest(),
    )
    first = run(read_model(in_memory(files), tables=tables))
    monkeypatch.setattr(tokenizer_json, "spec_from_tokenizer_json", lambda *_: pytest.fail("made again"))
    again = run(read_model(in_memory(files), tables=tables))
    assert again.tokenizer.encode("Hé 12") == first.tokenizer.encode("Hé 12")
    assert again.tokenizer.special_tokens == first.tokenizer.special_tokens


# ------------------------------------------------------------------------------------------------------- the output head


def with_head(head, *, tied=True, dtype="F32"):
    own = tensors() | {"lm_head.weight": (dtype, head.shape, head.astype("<f4" if dtype == "F32" else "<f2").tobytes())}
    settings = as_json(config(tie_word_embeddings=tied))
    return tiny_folder(model__safetensors=safetensors_bytes(own), config__json=settings)


def embedding():
    _, shape, data = tensors()["model.embed_tokens.weight"]
    return np.frombuffer(data, "<f4").reshape(shape).copy()


def test_a_head_stored_beside_the_equal_embedding_is_checked_and_not_kept(native, monkeypatch):
    monkeypatch.setattr(stored, "READ_BYTES", 1000)  # several reads
    told = []
    engine = load(in_memory(with_head(embedding())), on_progress=lambda *step: told.append(step))
    np.testing.assert_array_equal(engine.logits(IDS), load(in_memory(tiny_folder())).logits(IDS))
    assert engine._executor._weights.head is engine._executor._weights.embedding
    assert told[-1][0] == told[-1][1]
    np.testing.assert_array_equal(native(with_head(embedding())), native(tiny_folder()))


@pytest.mark.parametrize("change", ["last value", "shape", "dtype"])
def test_a_head_that_differs_from_the_embedding_it_is_said_to_be_is_refused(native, change):
    head = embedding()
    if change == "last value":
        head[-1, -1] += 1
    files = with_head(head[:-1] if change == "shape" else head, dtype="F16" if change == "dtype" else "F32")
    words = r"^model\.safetensors: lm_head\.weight: differs from model\.embed_tokens\.weight, .*tie_word_embeddings to false"
    for build in (lambda: load(in_memory(files)), lambda: native(files)):
        with pytest.raises(FormatError, match=words):
            build()


def test_a_head_of_its_own_is_used():
    engine = load(in_memory(with_head(2 * embedding(), tied=False)))
    np.testing.assert_allclose(engine.logits(IDS), 2 * load(in_memory(tiny_folder())).logits(IDS), rtol=1e-5, atol=1e-5)


def test_a_missing_head_that_is_not_the_embedding_is_refused():
    with pytest.raises(FormatError, match=r"^tiny: lm_head\.weight: the tensor is missing"):
        load(in_memory(tiny_folder(config__json=as_json(config(tie_word_embeddings=False)))))


def test_a_tensor_that_the_architecture_does_not_use_is_refused_by_name():
    extra = tensors() | {"model.layers.0.self_attn.q_proj.bias": ("F32", (32,), bytes(128))}
    with pytest.raises(UnsupportedError, match=r"^tiny: model\.layers\.0\.self_attn\.q_proj\.bias: a tensor of shape"):
        load(in_memory(tiny_folder(model__safetensors=safetensors_bytes(extra))))


def test_weights_that_are_not_finite_are_refused_by_file_and_tensor(native):
    name = "model.layers.1.mlp.up_proj.weight"
    bad = tensors()
    bad[name] = (*bad[name][:2], b"\xff" * len(bad[name][2]))
    files = tiny_folder(model__safetensors=safetensors_bytes(bad))
    for build in (lambda: load(in_memory(files)), lambda: native(files)):
        with pytest.raises(FormatError, match=rf"^model\.safetensors: {name}: "):
            build()


# ---------------------------------------------------------------------------------------------------------- several files


def test_each_file_is_read_from_its_beginning_to_its_end(native):
    reads = []

    class Noting(BytesSource):
        async def read(self, offset, length):
            reads.append((self.name, offset))
            return await super().read(offset, length)

    files = ModelFiles("tiny", {name: Noting(data, name) for name, data in sharded().items()})
    model = run_without_waiting(read_model(files))
    for build in (build_numpy_executor, native_executor.build):
        reads.clear()
        run_without_waiting(build(model.config, model.weights, context=64))
        assert {name for name, _ in reads} == set(SHARDS)
        assert reads == sorted(reads)


def index(**changes):
    places = json.loads(sharded()["model.safetensors.index.json"])["weight_map"]
    places |= {name.replace("__", "."): shard for name, shard in changes.items()}
    return as_json({"weight_map": {name: shard for name, shard in places.items() if shard is not None}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"model.norm.weight": SHARDS[0]},
            rf"^{SHARDS[1]}: tensor model\.norm\.weight: it is here, and .* in {SHARDS[0]}",
        ),
        ({"model.norm.weight": None}, rf"^{SHARDS[1]}: tensor model\.norm\.weight: it is here, and .* has it nowhere"),
        ({"new": SHARDS[0]}, rf"^{SHARDS[0]}: tensor new: it is not here, where .* has it"),
        (
            {"new": "../../secret.safetensors"},
            r"weight_map: new: '\.\./\.\./secret\.safetensors' \(allowed: the name of ",
        ),
        (
            {"new": "tokenizer.json"},
            r"weight_map: new: 'tokenizer\.json' \(allowed: the name of a \.safetensors file\)",
        ),
        ({"new": 7}, r"weight_map: new: 7 \(allowed"),
    ],
    ids=["another shard", "not in the index", "only in the index", "a path", "no shard's name", "a number"],
)
def test_an_index_that_disagrees_with_the_files_is_refused(changes, words):
    with pytest.raises(FormatError, match=words):
        opened(sharded(model__safetensors__index__json=index(**changes)))


def test_a_missing_shard_is_named_with_a_tensor_that_is_in_it():
    files = sharded()
    del files[SHARDS[1]]
    with pytest.raises(FormatError, match=rf"index\.json: weight_map: .*: the file {SHARDS[1]} is missing from tiny"):
        opened(files)


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"weight_map": {}}', b'{"weight_map": []}', b"", b"\xff{"])
def test_an_index_that_is_none_is_refused_by_name(content):
    with pytest.raises(FormatError, match=r"^model\.safetensors\.index\.json: "):
        opened(sharded(model__safetensors__index__json=content))


# ------------------------------------------------------------------------------------------------------------ the terminal


@pytest.fixture
def folder(tmp_path):
    return str(write_folder(tmp_path / "tiny", tiny_folder()))


def test_the_terminal_takes_a_folder(folder, capsys):
    assert main(["chat", folder, "--message", "Hi", "--max-tokens", "3", "--executor", "numpy"]) == 0
    assert main(["tokenize", folder, "Hé", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == list("Hé".encode())
    assert main(["logits", folder, "Hi", "--json", "--executor", "numpy"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 10


def test_inspect_tells_what_a_folder_holds(tmp_path, capsys):
    settings = as_json(config(rope_scaling={"rope_type": "linear", "factor": 2.0}))
    folder = write_folder(tmp_path / "tiny", tiny_folder(config__json=settings))
    assert main(["inspect", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["file"]["name"] == "tiny"
    assert report["file"]["F32 tensors"] == 20
    assert report["config"]["rope_layout"] == "half"
    assert report["config"]["rope_scaling"] == {"kind": "LinearScaling", "factor": 2.0}
    assert report["metadata"]["model_type"] == "llama"
