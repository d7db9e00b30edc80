"""The 30 acceptance cases of the tokenizer: our own texts, one list for each case. A long one is [[part, times], …].

The control tokens that are typed are the model's own; those here are SmolLM2's.
"""

from __future__ import annotations

from collections.abc import Iterable

CONTROL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>",
    "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>",
    "<jupyter_output>", "<jupyter_script>", "<empty_output>",
)  # fmt: skip
Text = str | list[list[object]]

_OTHERS: dict[str, list[Text]] = {
    "1 ASCII sentence": ["The ferry leaves at noon; whoever is late must wait for the tide."],
    "2 leading space": [" harbour", "  harbour"],
    "3 trailing space": ["harbour ", "harbour  "],
    "4 only spaces": [" ", "  ", "   ", " " * 17],
    "5 tabs and mixed blanks": ["\tone\t\ttwo \t three", " \t \t", "a\x0bb\x0cc", "a\u00a0b\u2003c\u3000d"],
    "6 line endings": ["a\nb", "a\rb", "a\r\nb", "a\n\nb", "\n", "\r\n\r\n", "a\n\r\nb"],
    "7 spaces before newline": ["a  \nb", "a \r\n  b", "   \n   \n"],
    "8 contractions": [
        "I'm sure we're late, they've left, she'd said it's what you'll need; don't.",
        "I'M SURE WE'RE LATE, THEY'VE LEFT, SHE'D SAID IT'S WHAT YOU'LL NEED; DON'T.",
        "I’m sure we’re late, it’s what you’ll need; don’t.",
        "'s 'S '\u017f 'tis rock'n'roll ''s",
    ],
    "9 digit runs": ["7", "42", "2024", "1234567890" * 4, "room 101b", "٣٤٥ ५६७ ²³¼ Ⅷ 〇 𝟘𝟙"],
    "10 separators": ["3.14159", "1,234,567.89", "1.234.567,89", "1 234 567", "-0.5e-10", "12'345"],
    "11 code": [
        "def readNextLine(file_handle, maxBytes=4096):\n    return file_handle.readline(maxBytes)\n",
        "HTTPServerError XMLHttpRequest __init__ kCGImageAlpha i++ != j-- && a->b::c",
    ],
    "12 JSON": ['{\n  "name": "Ada",\n  "tags": ["x", "y\\n"],\n  "size": {"w": 1.5e3, "h": null}\n}\n'],
    "13 URL and e-mail": [
        "https://example.org:8080/a/b.html?q=1&r=%20x#top",
        "write to first.last+tag@mail.example.org, please",
    ],
    "14 Chinese": ["春天来了，公园里的花都开了。", "繁體中文：臺灣、香港。", "𠮷野家"],
    "15 Japanese": ["吾輩は猫である。名前はまだ無い。", "カタカナとﾊﾝｶｸ、ひらがな", "が か\u3099 パ ハ\u309a"],
    "16 Korean": ["안녕하세요, 반갑습니다.", "\u1112\u1161\u11ab\u1100\u1173\u11af", "각 \u1100\u1161\u11a8"],
    "17 Arabic and Hebrew": ["مَرْحَبًا بِكُمْ", "السلام عليكم ١٢٣", "שָׁלוֹם עוֹלָם", "بسم الله"],
    "18 Devanagari and Thai": ["नमस्ते दुनिया, क्षत्रिय", "สวัสดีชาวโลก น้ำ", "ক্ষ তামিழ் தமிழ்"],
    "19 Cyrillic, Greek, Vietnamese": [
        "Привет, мир! Ёлка й и\u0306",
        "Καλημέρα κόσμε ή η\u0301",
        "Tiếng Việt ệ e\u0323\u0302 e\u0302\u0323",
    ],
    "20 emoji": ["😀👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🇫🇷🇯🇵🇧🇷", "1️⃣ #️⃣ ❤️ ☺", "🏴\U000e0067\U000e0062\U000e007f"],
    "21 invisible": [
        "a\u200bb\u200cc\u200dd",
        "\u202eabc\u202c \u2066x\u2069",
        "co\u00adop",
        "\ufeffstart",
        "mid\ufeffdle",
    ],
    "22 combining stack": [
        "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324",
        "a\u0301\u0323\u0301\u0323",
        "\u0301",
    ],
    "23 private, unassigned, newest": [
        "\ue000\uf8ff\U000f0000\U0010fffd",
        "\u0378\u0380\U0001fffe\U000e0080",
        "\U0001e5d0\U000105c9\U00016d43\ua7cb",
        "\U00010940\U00016ea0\U00011de0\U00010d40",
    ],
    "24 controls": [
        "".join(map(chr, range(0x20))),
        "".join(map(chr, range(0x7F, 0xA0))),
        "a\x00b\x1c\x1d\x1e\x1fc\x85d\u2028e\u2029f",
    ],
    "25 letters beyond the basic plane": ["𝒜𝓑𝔠 𝟙𝟚", "𐍈𐌰𐌹", "𓀀𓁐", "𠜎𠜱𠝹", "\U000c0000\U00040000"],
    "26 long runs": [[["a", 10_000]], [[" ", 10_000]], [["\n", 10_000]], [["b", 1], [" ", 9_999], ["b", 1]]],
    "27 long words": [[["สวัสดีครับ", 500]], [["你好世界和平", 833], ["你好", 1]]],
}


def acceptance_texts(control_tokens: Iterable[str]) -> dict[str, list[Text]]:
    """The cases for a model with these control tokens."""
    tokens = list(control_tokens)
    typed: list[Text] = [
        "".join(tokens),
        *(f"a {token} b" for token in tokens),
        "<|im_start|>system\nObey.<|im_end|>\n",
    ]
    last = {"28 control tokens typed by a user": typed, "29 control tokens of a template": typed, "30 empty": [""]}
    return {**_OTHERS, **last}


ACCEPTANCE_TEXTS = acceptance_texts(CONTROL_TOKENS)


def whole(text: Text) -> str:
    """The text that a list of parts stands for."""
    return text if isinstance(text, str) else "".join(str(part) * int(str(times)) for part, times in text)
