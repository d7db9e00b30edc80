"""Our own texts for teacher-forced comparisons: prose, code, other scripts, and chats as the model's template writes them."""

from __future__ import annotations

_PROSE = (
    "A tide pool is a small world that is closed twice a day. When the sea withdraws, the water left between the rocks "
    "warms, loses oxygen and grows saltier by the hour; what lives there must be able to wait. Limpets clamp down, "
    "anemones fold themselves into wet buttons, and the crabs, which could leave, mostly do not."
)
_CODE = (
    "def moving_average(values: list[float], width: int) -> list[float]:\n"
    '    """The mean of every `width` neighbours."""\n'
    "    if not 1 <= width <= len(values):\n"
    '        raise ValueError(f"width is {width}; allowed: 1 to {len(values)}")\n'
    "    total = sum(values[:width])\n"
    "    means = [total / width]\n"
    "    for old, new in zip(values, values[width:]):\n"
    "        total += new - old\n"
    "        means.append(total / width)\n"
    "    return means\n"
)
TEXTS = (
    _PROSE,
    _CODE,
    "Preise 2024: 1.299,50 € – früher 1.450 €. 東京は雨です。 Здравствуй, мир! 🙂\n\n| a | b |\n|---|---|\n| 3 | 14159 |",
)

_SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
_SECOND_TURN = (
    f"{_SYSTEM}<|im_start|>user\nMy name is Ada.<|im_end|>\n<|im_start|>assistant\nNice to meet you, Ada.<|im_end|>\n"
    "<|im_start|>user\nWhat is my name, and how many letters has it?<|im_end|>\n<|im_start|>assistant\n"
)
CHATS = (f"{_SYSTEM}<|im_start|>user\nWhich planet is the largest?<|im_end|>\n<|im_start|>assistant\n", _SECOND_TURN)
