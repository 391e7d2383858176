#!/usr/bin/env python3
"""2,000 strings put together at random (code, Markdown, scripts, digits, contractions, control
tokens, any assigned character up to Unicode 14) and their ids by Hugging Face's `tokenizers` (made
with 0.23.3):   make_fuzz.py OUT.jsonl.xz   (run in this folder)
One line per string: {"text", "smollm2": ids, "qwen3": ids}, special tokens in the text parsed."""
import collections
import json
import lzma
import random
import sys
import tarfile
import unicodedata

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SNIPPETS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'ve", "'ll", "'LL", "'d", "'m", "'ſ", "'K", " the", "The", " don't",
            "DON'T", "\r\n", "\n\n", "\t", "   ", "    ", "2024", "3.14", "½", "①", "٣", "Ⅷ", "ﬁ", "Café", "Cafe\u0301",
            "\u0301\u0323", "\u180e", "\u0085", "\u00a0", "\u2028", "\u200b", "\u3000", "\ufeff", "中文", "한국어", "각",
            "日本語", "😀", "👨‍👩‍👧", "<|", "|>", "<", "#include <x>", "def f(x):\n    return x", "**bold**", "| a | b |", "_",
            "__", "http://x.y/z?a=1", "\0", "ÅÅ", "Ω", "ﷺ", "ẛ̣", "İ", "ß", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
            "<think>", "<tool_call>", "<repo_name>"]


def smollm2():
    with lzma.open("smollm2.tables.json.xz") as f:
        tables = json.load(f)
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tables["tokens"])},
                             merges=[tuple(m.split(" ")) for m in tables["merges"]]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, normalized=False, special=True)
                          for s, y in zip(tables["tokens"], tables["token_type"]) if y == 3])
    return t


def qwen3():
    with tarfile.open("qwen3.tar.xz") as tar:
        member = next(m for m in tar if m.name.endswith("/tokenizer.json"))
        return Tokenizer.from_str(tar.extractfile(member).read().decode())


def main():
    rng = random.Random(20240607)
    categories = collections.defaultdict(list)
    for code_point in range(0x110000):
        category = unicodedata.category(chr(code_point))
        if category not in ("Cn", "Co", "Cs"):
            categories[category].append(chr(code_point))
    names = sorted(categories)

    def part():
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(SNIPPETS)
        if kind < 0.65:
            return "".join(chr(rng.randrange(128)) for _ in range(rng.randint(1, 4)))
        return rng.choice(categories[rng.choice(names)]) * rng.choice([1, 1, 1, 2, 3])

    tokenizers = {"smollm2": smollm2(), "qwen3": qwen3()}
    with lzma.open(sys.argv[1], "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8", newline="\n") as out:
        for _ in range(2000):
            text = "".join(part() for _ in range(rng.randint(1, 12)))
            row = {"text": text} | {k: t.encode(text, add_special_tokens=False).ids for k, t in tokenizers.items()}
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
