"""How large things are in kernel memory, and where they go: the sizes of `kernels/layout.h` and `kernels/cache.h`.

Everything lies in one arena that is laid out before it is allocated and never changes: control block, program, tables,
buffers, cache, weights. Places are in units of `UNIT` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyruntime.errors import OutOfMemoryError, compose
from pyruntime.model.kernel_abi import BLOCK, KEY_PANEL, PANEL_ROWS, ROW_TILE, SPAN, UNIT, number

if TYPE_CHECKING:
    from pyruntime.model.config import ModelConfig

# The form in which weights of a stored type are kept; `kernels/stored.c` makes it of them.
FORMAT_OF_TYPE = {
    "F32": "Q8", "F16": "Q8", "BF16": "Q8", "Q8_0": "Q8", "Q4_0": "Q4", "Q4_1": "Q4_MIN", "Q5_0": "Q8", "Q5_1": "Q8",
    "Q4_K": "Q4_MIN", "Q5_K": "Q8", "Q6_K": "Q8",
}  # fmt: skip

_MOST_BYTES = UNIT * (2**31 - 1)  # places are 32-bit numbers
_PANEL_BLOCK_BYTES = {"Q8": 32 + 512, "Q4": 32 + 256, "Q4_MIN": 64 + 256}


def round_up(n: int, step: int) -> int:
    """The least multiple of `step` that is not less than `n`."""
    return -(-n // step) * step


def panel_block_bytes(format_: str) -> int:
    """Bytes of one block, 16 rows by 32 columns, of a weight matrix in that format."""
    return _PANEL_BLOCK_BYTES[format_]


def matrix_bytes(format_: str, rows: int, columns: int) -> int:
    """Bytes of a weight matrix (rows, columns) in panels."""
    return -(-rows // PANEL_ROWS) * -(-columns // BLOCK) * panel_block_bytes(format_)


def row_bytes(kind: str, width: int) -> int:
    """Bytes of a row of `width` values in the form `kind`, a name of the ABI's ROW."""
    blocks = -(-width // BLOCK)
    if kind == "FLOAT":
        return 4 * BLOCK * blocks
    return round_up(blocks * (BLOCK * (1 if kind == "INT8" else 2) + 8), UNIT)


@dataclass
class Arena:
    """Hands out places one after another; knows nothing of what goes there.

    Attributes:
        end: bytes handed out so far.
    """

    end: int = 0

    def take(self, n_bytes: int) -> int:
        """The place, in units, of `n_bytes` new bytes; OutOfMemoryError when places have no number for it."""
        place = self.end // UNIT
        self.end += round_up(n_bytes, UNIT)
        if self.end > _MOST_BYTES:
            problem = f"no memory holds {self.end / 1e6:,.0f} MB of weights and cache"
            raise OutOfMemoryError(compose("kernels", problem, advice="Choose a smaller model or less context"))
        return place


@dataclass(frozen=True)
class CacheLayout:
    """Where the KV cache lies.

    Attributes:
        kv: how numbers are cached, a name of the ABI's KV.
        n_layers, kv_heads, head_size: the model's.
        capacity: positions, whole key panels.
        place: of the first layer.
    """

    kv: str
    n_layers: int
    kv_heads: int
    head_size: int
    capacity: int
    place: int = 0
    _values: int = field(init=False)
    _scales: int = field(init=False)

    def __post_init__(self) -> None:
        values = self.kv_heads * self.capacity * round_up(self.head_size, 8) * (2 if self.kv == "INT16" else 1)
        object.__setattr__(self, "_values", round_up(values, UNIT) // UNIT)
        object.__setattr__(self, "_scales", round_up(self.kv_heads * self.capacity * 4, UNIT) // UNIT)

    @classmethod
    def of_model(cls, config: ModelConfig, kv: str, context: int, place: int = 0) -> CacheLayout:
        """The cache of a model for `context` positions."""
        capacity = round_up(context, KEY_PANEL)
        return cls(kv, config.n_layers, config.n_kv_heads, config.head_size, capacity, place)

    @property
    def n_bytes(self) -> int:
        """Bytes of all layers."""
        return UNIT * self.n_layers * 2 * (self._values + self._scales)

    def words(self, layer: int) -> dict[str, int]:
        """The fields by which operations find the cache of a layer."""
        keys = self.place + layer * 2 * (self._values + self._scales)
        key_scales = keys + self._values
        values = key_scales + self._scales
        return {
            "keys": keys,
            "key_scales": key_scales,
            "values": values,
            "value_scales": values + self._values,
            "kv": number("KV", self.kv),
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            "capacity": self.capacity,
        }


def peaks_bytes(width: int, rows: int) -> int:
    """Bytes of the peaks of `rows` rows: the largest of each 16 values, infinity if one of them is not finite."""
    return 4 * -(-width // PANEL_ROWS) * rows


def partials_bytes(n_heads: int, kv_heads: int, head_size: int, capacity: int) -> int:
    """Bytes of what attention over many spans leaves for MERGE when there is one token."""
    row_tiles = -(-(n_heads // kv_heads) // ROW_TILE)
    spans = -(-capacity // SPAN)
    return kv_heads * row_tiles * spans * ROW_TILE * (2 + round_up(head_size, 8)) * 4
