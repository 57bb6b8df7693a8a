"""Texts to count: every kind that a tokenizer may be given, and those that are made to be awkward."""

import base64
import json
import pathlib
import random
import string
import unicodedata

ROOT = pathlib.Path(__file__).parent.parent.parent
SAMPLES = json.loads((ROOT / "tests/tokenizers/samples.json").read_text())

# Where the letters of scripts are.
SCRIPTS = {
    "Latin": (0xC0, 0x24F), "Greek": (0x370, 0x3FF), "Cyrillic": (0x400, 0x52F), "Armenian": (0x531, 0x58A),
    "Hebrew": (0x591, 0x5F4), "Arabic": (0x600, 0x6FF), "Syriac": (0x700, 0x74F), "Thaana": (0x780, 0x7B1),
    "NKo": (0x7C0, 0x7FA), "Devanagari": (0x900, 0x97F), "Bengali": (0x980, 0x9FE), "Gurmukhi": (0xA01, 0xA76),
    "Gujarati": (0xA81, 0xAFF), "Oriya": (0xB01, 0xB77), "Tamil": (0xB82, 0xBFA), "Telugu": (0xC00, 0xC7F),
    "Kannada": (0xC80, 0xCF3), "Malayalam": (0xD00, 0xD7F), "Sinhala": (0xD81, 0xDF4), "Thai": (0xE01, 0xE5B),
    "Lao": (0xE81, 0xEDF), "Tibetan": (0xF00, 0xFDA), "Myanmar": (0x1000, 0x109F), "Georgian": (0x10A0, 0x10FF),
    "Hangul Jamo": (0x1100, 0x11FF), "Ethiopic": (0x1200, 0x139F), "Cherokee": (0x13A0, 0x13FD),
    "Canadian": (0x1400, 0x167F), "Ogham": (0x1680, 0x169C), "Runic": (0x16A0, 0x16F8), "Tagalog": (0x1700, 0x171F),
    "Khmer": (0x1780, 0x17F9), "Mongolian": (0x1800, 0x18AA), "Limbu": (0x1900, 0x194F), "Tai Le": (0x1950, 0x1974),
    "Balinese": (0x1B00, 0x1B7E), "Lepcha": (0x1C00, 0x1C4F), "Vietnamese": (0x1EA0, 0x1EF9),
    "Greek extended": (0x1F00, 0x1FFE), "Tifinagh": (0x2D30, 0x2D7F), "Hiragana": (0x3041, 0x309F),
    "Katakana": (0x30A0, 0x30FF), "Bopomofo": (0x3105, 0x312F), "Han": (0x4E00, 0x9FFF), "Yi": (0xA000, 0xA48C),
    "Vai": (0xA500, 0xA62B), "Hangul": (0xAC00, 0xD7A3), "Presentation forms": (0xFB00, 0xFDFF),
    "Compatibility Han": (0xF900, 0xFAD9), "Fullwidth": (0xFF01, 0xFFEE), "Gothic": (0x10330, 0x1034A),
    "Music": (0x1D100, 0x1D1E8), "Mathematical": (0x1D400, 0x1D7FF), "Adlam": (0x1E900, 0x1E959),
    "Han extension": (0x20000, 0x2A6DF), "Compatibility supplement": (0x2F800, 0x2FA1D),
}  # fmt: skip
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "❤️", "🚀", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
SPACES = [" ", "\n", "\t", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u00a0", "\u2003", "\u2028", "\u3000", "\u200b"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'ſ", "'", "’s", "'x"]


def repository():
    """Prose, code and JSON that is here anyway."""
    return {
        "prose": "\n\n".join(SAMPLES["English"]),
        "documentation": (ROOT / "docs/ARCHITECTURE.md").read_text(),
        "code": (ROOT / "src/wire/stream_normalizer.rs").read_text(),
        "JSON": (ROOT / "tests/clients/package-lock.json").read_text(),
    }


def samples():
    """What the table of ratios is made of."""
    return repository() | {name: "\n".join(text) for name, text in SAMPLES.items() if name != "English"}


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.sources = list(samples().values())
        self.words = sorted({word for source in self.sources for word in source.split()})
        self.kinds = [
            self.cut_from_source, self.prose, self.camel, self.letters, self.digits, self.base64, self.bytes,
            self.script, self.scripts, self.any_characters, self.run, self.alternation, self.spaces, self.controls,
            self.emoji, self.marks, self.contractions, self.decomposed, self.json, self.mixed, self.mixed,
        ]  # fmt: skip

    def text(self):
        size = int(2 ** self.random.uniform(0, 9))
        if self.random.random() < 0.02:
            size *= 20
        return self.random.choice(self.kinds)(size)

    def characters(self, size, alphabet):
        return "".join(self.random.choices(alphabet, k=size))

    def cut_from_source(self, size):
        source = self.random.choice(self.sources)
        start = self.random.randrange(len(source))
        return source[start : start + size]

    def prose(self, size):
        return " ".join(self.random.choices(self.words, k=size // 6 + 1))

    def camel(self, size):
        words = self.random.choices(self.words, k=size // 6 + 1)
        return "".join(self.random.choice([str.capitalize, str.upper, str.lower])(word) for word in words)

    def letters(self, size):
        alphabet = self.random.choice([string.ascii_lowercase, string.ascii_letters, "ab", "aAbB ", "etaoin "])
        return self.characters(size, alphabet)

    def digits(self, size):
        return self.characters(size, self.random.choice(["0123456789", "0123456789 .,", "٠١٢٣٤٥٦٧٨٩", "½²①Ⅷ1৪", "0"]))

    def base64(self, size):
        return base64.b64encode(self.random.randbytes(size)).decode()

    def bytes(self, size):
        return self.random.randbytes(size).decode("utf-8", self.random.choice(["replace", "ignore"]))

    def range(self, size, low, high):
        return "".join(chr(self.random.randint(low, high)) for _ in range(size))

    def script(self, size):
        low, high = self.random.choice(list(SCRIPTS.values()))
        words = (self.range(self.random.randint(1, 14), low, high) for _ in range(size // 8 + 1))
        return self.random.choice([" ", "", "\n"]).join(words)

    def scripts(self, size):
        return self.characters(1, " ").join(self.script(8) for _ in range(size // 16 + 1))

    def any_characters(self, size):
        return self.range(size, 0, 0xD7FF) if self.random.random() < 0.5 else self.range(size, 0xE000, 0x10FFFF)

    def run(self, size):
        return self.characters(1, self.alphabet()) * size

    def alternation(self, size):
        return "".join(self.random.choices(self.alphabet(), k=self.random.randint(2, 4))) * (size // 2 + 1)

    def alphabet(self):
        return [*SPACES, *EMOJI, *MARKS, *CONTRACTIONS, *"aZé字я0٣", "\0", "\x7f", "\u0301", "\ufeff", " a", "x\n"]

    def spaces(self, size):
        return self.characters(size, SPACES) + self.random.choice(["", "x", " x", "\n", "字", "!"])

    def controls(self, size):
        return "".join(chr(self.random.choice([*range(32), 127, *range(128, 160)])) for _ in range(size))

    def emoji(self, size):
        return "".join(self.random.choice(EMOJI + [" ", "a"]) for _ in range(size // 4 + 1))

    def marks(self, size):
        return self.characters(size, MARKS + " \n/")

    def contractions(self, size):
        return "".join(self.random.choice(self.words) + self.random.choice(CONTRACTIONS) for _ in range(size // 8 + 1))

    def decomposed(self, size):
        form = self.random.choice(["NFD", "NFKD", "NFC"])
        marks = "".join(self.random.choice(["", "\u0301", "\u0323\u0301", "\u0301\u0323"]) for _ in range(3))
        return unicodedata.normalize(form, self.random.choice([self.script, self.cut_from_source])(size)) + "a" + marks

    def json(self, size):
        values = {self.random.choice(self.words): self.random.choice([1.5, None, True, word]) for word in self.prose(size).split()}
        return json.dumps(values, ensure_ascii=self.random.random() < 0.5, indent=self.random.choice([None, 2]))

    def mixed(self, size):
        return "".join(self.random.choice(self.kinds[:-2])(size // 4 + 1) for _ in range(4))


def hostile():
    """Long ones, by name: what costs a tokenizer time, or has more tokens than it looks."""
    letters = random.Random(1)
    word = "".join(letters.choices(string.ascii_lowercase, k=4000))
    return {
        "line ends": "\r\n" * 100_000,
        "newlines and tabs": "\n\t" * 50_000,
        "spaces": " " * 100_000,
        "one letter": "a" * 20_000,
        "random letters": word,
        "random words": " ".join(word[at : at + 9] for at in range(0, 4000, 9)),
        "a million digits": "0123456789" * 100_000,
        "a long line": "=" * 5_000,
        "combining marks": "\u0301" * 5_000,
        "rare characters": "".join(chr(0x20000 + at * 7) for at in range(5_000)),
        "compatibility characters": "".join(chr(0x2F800 + at % 500) for at in range(5_000)),
        "nulls": "\0" * 5_000,
        "one sentence": "的是不了人我在有他这" * 1_000,
    }
