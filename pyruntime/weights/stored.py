"""A model's weights where they are stored: in one file or in several, under the names of their publisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyruntime.errors import FormatError
from pyruntime.weights.loading import READ_BYTES
from pyruntime.weights.names import GGUF_ROPE_DIVISORS, gguf_name, hf_name, match_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyruntime.formats.gguf import GGUFFile
    from pyruntime.formats.model_files import ModelFiles
    from pyruntime.formats.source import ByteSource
    from pyruntime.formats.tensor_info import TensorInfo


@dataclass(frozen=True)
class StoredWeights:
    """All weights of a model, not yet read.

    Attributes:
        name: of the model's file or folder, for errors.
        tensors: by their own names.
        sources: file name → its bytes, for every file that a tensor is in.
        name_of: our name of a weight → the files' own.
        tied_head: the output head, where it is stored although it must equal the embedding. It is not in `tensors`.
    """

    name: str
    tensors: Mapping[str, TensorInfo]
    sources: Mapping[str, ByteSource]
    name_of: Callable[[str], str]
    tied_head: TensorInfo | None = None

    @classmethod
    def of_gguf(cls, file: GGUFFile, source: ByteSource) -> StoredWeights:
        """Those of a GGUF file."""
        tensors = {name: tensor for name, tensor in file.tensors.items() if name != GGUF_ROPE_DIVISORS}
        return cls(file.name, tensors, {file.name: source}, gguf_name)

    @classmethod
    def of_folder(cls, files: ModelFiles, tensors: Mapping[str, TensorInfo], *, tied: bool) -> StoredWeights:
        """Those of a Hugging Face model.

        Args:
            files: the model's.
            tensors: from `read_tensors`.
            tied: whether the output head is the embedding.
        """
        head = tensors.get(hf_name("head")) if tied else None
        weights = {name: tensor for name, tensor in tensors.items() if tensor is not head}
        sources = {name: files.open(name) for name in {tensor.file for tensor in tensors.values()}}
        return cls(files.name, weights, sources, hf_name, head)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors: what is read to have them."""
        beside = 0 if self.tied_head is None else self.tied_head.nbytes
        return beside + sum(tensor.nbytes for tensor in self.tensors.values())

    def read_counter(self, on_progress: Callable[[int, int], None] | None) -> Callable[[int], None]:
        """A function to be told the bytes of each range as it is read.

        Args:
            on_progress: told (bytes read so far, bytes of all weights): now, and after each range.
        """
        total, done = self.nbytes, 0

        def on_read(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            if on_progress:
                on_progress(done, total)

        on_read(0)
        return on_read

    def match(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
        """Our name → the tensor, for every weight in `shapes`; errors as `match_tensors`."""
        return match_tensors(shapes, self.tensors, self.name_of, file=self.name)

    async def check_tied_head(self, on_read: Callable[[int], None]) -> None:
        """Compare a head that is stored beside the embedding it must equal, a few megabytes at a time.

        Args:
            on_read: told the bytes of the head just read.

        Raises:
            FormatError: they differ.
        """
        head = self.tied_head
        if head is None:
            return
        embedding = self.tensors[self.name_of("embedding")]
        same = (head.shape, head.type) == (embedding.shape, embedding.type)
        for start in range(0, head.nbytes, READ_BYTES):
            length = min(READ_BYTES, head.nbytes - start)
            same = same and await self._read(head, start, length) == await self._read(embedding, start, length)
            if not same:
                problem = f"differs from {embedding.name}, while the configuration says that they are one (tied)"
                advice = "Set tie_word_embeddings to false in config.json if the model has a head of its own"
                raise FormatError(head.file, head.name, problem, advice=advice)
            on_read(length)

    async def _read(self, tensor: TensorInfo, start: int, length: int) -> bytes:
        return bytes(await self.sources[tensor.file].read(tensor.offset + start, length))
