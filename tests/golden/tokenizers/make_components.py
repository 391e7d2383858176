#!/usr/bin/env python3
"""Small tokenizers that each differ in one component, with the ids that Hugging Face's `tokenizers`
(made with 0.23.3) gives for a list of strings.   make_components.py OUT.jsonl.xz
One line per tokenizer: {"name", "tokenizer": the tokenizer.json without its vocabulary and merges,
"cases": [[text, ids, ids with special tokens as text, ids with special tokens added, decoded]]}; the
first line is {"model": {"vocab", "merges"}}, shared by all."""
import json
import lzma
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CORPUS = ["The café's don't DON'T they've 2024 3.14 Việt Nam é ê số fi fi", "def f(x):\n    return x + 1\r\n",
          "<t>Hello</t>  world  hello  world", "日本語 中文 한국어 123 456", "naïve façade coöperate Ａ１２ ½ ﬁ Å Ω"] * 20

TEXTS = ["", " ", "  ", "Hello world", " hello  world ", "don't DON'T they'Ve it's", "2024 123456 3.14 ½ ① ٣٤ Ⅷ", "a1b22c333",
         "Café", "Cafe\u0301", "4 ½ months", "ﬁ ﬃ Å Å Ω Ω", "Ａ１２３", "각 각", "a\u0301\u0323 a\u0323\u0301", "\u0301start",
         "<t>Hello", "<t>  Hello", "<t>\n\tHello <t>", "a  <t>", "a\u00a0\u3000<t> b", "x<t>y", "x <t> y", "é<t>", "<t>é", "_<t>_",
         "<t><t>", " <t> <t> ", "<t", "<tt>", "<t>t>", "<T>", "Việt", " Việt", "Việt Nam", "日本語中文", "tab\tnew\nline\r\nend  ",
         "\u180e a\u180e b", "a\u0085b", "a\u2028b", "foo.bar(x)[0] += 1;", "!!! ?? ...", "  \n\n  x", "AB\0CD", "\0", "😀 👩‍👩‍👧 🇫🇷",
         "it'ſ 'K", "e\u0301<t>e\u0301", "<b>x</b>", "ab<ab>ab<abc>", "thethe the", "\u200d<t>\u200d", "1<t>2", "Ⓐ<t>", "½<t>", "-<t>-"]


def trained():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=420, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())["model"]


MODEL = trained()
FIRST_ADDED = len(MODEL["vocab"])  # Added tokens are numbered on from the model's.


def byte_level(**kw):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True} | kw


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def added(content, **kw):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | kw


def spec(normalizer=None, pre_tokenizer=None, tokens=(), post=None, model=()):
    tokens = [t | {"id": FIRST_ADDED + i} for i, t in enumerate(tokens)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer or byte_level(), "post_processor": post, "decoder": byte_level(), "model": dict(model)}


def template(*single, **ids):
    return {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}} if s == "A" else
                                                     {"SpecialToken": {"id": s, "type_id": 0}} for s in single],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {k: {"id": k, "ids": [v], "tokens": [k]} for k, v in ids.items()}}


def variants():
    yield "plain", spec()
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        yield "normalizer " + form, spec(normalizer={"type": form}, tokens=[added("<t>")])
    yield "normalizer sequence", spec(normalizer={"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]})
    yield "byte level with prefix space", spec(pre_tokenizer=byte_level(add_prefix_space=True), tokens=[added("<t>")])
    yield "byte level without regex", spec(pre_tokenizer=byte_level(use_regex=False))
    yield "digits individual", spec(pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level()))
    yield "digits together", spec(pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, byte_level()))
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            yield f"split {behavior} invert {invert}", spec(
                pre_tokenizer=sequence(split(r"\s+|\d", behavior, invert), byte_level(use_regex=False)))
    yield "split string", spec(pre_tokenizer=sequence(split(".", kind="String"), split("(x)", kind="String"), byte_level(use_regex=False)))
    yield "split word class", spec(pre_tokenizer=sequence(split(r"\w+|[^\w\s]+"), byte_level(use_regex=False)))
    yield "split space class", spec(pre_tokenizer=sequence(split(r"\S+\s?"), byte_level(use_regex=False)))
    yield "split qwen", spec(pre_tokenizer=sequence(split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
        byte_level(use_regex=False)))
    for flags in [{"rstrip": True}, {"lstrip": True}, {"single_word": True}, {"lstrip": True, "rstrip": True},
                  {"normalized": True}, {"special": False}, {"special": False, "single_word": True, "rstrip": True}]:
        yield "added token " + json.dumps(flags), spec(tokens=[added("<t>", **flags)])
    yield "added tokens that overlap", spec(tokens=[added("<t"), added("<t>"), added("t>", special=False), added("<ab>"), added("ab"), added("<abc>")])
    yield "added token normalized", spec(normalizer={"type": "NFC"}, tokens=[added("\u1ea1", normalized=True, special=False), added("<t>")])
    yield "added token that is in the vocabulary", spec(tokens=[added("the", special=False)])
    yield "ignore merges", spec(model={"ignore_merges": True})
    yield "bos and eos", spec(tokens=[added("<t>"), added("</s>")], post=template("<t>", "A", "</s>", **{"<t>": FIRST_ADDED, "</s>": FIRST_ADDED + 1}))
    yield "bos in a sequence", spec(tokens=[added("<t>")], post={"type": "Sequence", "processors": [byte_level(), template("<t>", "A", **{"<t>": FIRST_ADDED})]})


def main():
    with lzma.open(sys.argv[1], "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8", newline="\n") as out:
        shared = {k: MODEL[k] for k in ("vocab", "merges")}
        out.write(json.dumps({"model": shared}, ensure_ascii=False, separators=(",", ":")) + "\n")
        for name, tokenizer in variants():
            full = tokenizer | {"model": MODEL | tokenizer["model"]}
            if name == "ignore merges":  # A whole word that its merges do not lead to.
                tokenizer["model"]["extra_vocab"] = {"ĠViá»ĩt": FIRST_ADDED}
                full["model"]["vocab"] = shared["vocab"] | tokenizer["model"]["extra_vocab"]
            t, literal = Tokenizer.from_str(json.dumps(full)), Tokenizer.from_str(json.dumps(full))
            literal.encode_special_tokens = True
            cases = []
            for text in TEXTS:
                ids, special = t.encode(text, add_special_tokens=False).ids, t.encode(text).ids
                if special[:1] == ids[:1] == [FIRST_ADDED] and len(special) > len(ids):
                    special = special[1:]  # Quire's own rule: a BOS that is there already is not doubled.
                cases.append([text, ids, literal.encode(text, add_special_tokens=False).ids, special,
                              t.decode(ids, skip_special_tokens=False)])
            row = {"name": name, "tokenizer": tokenizer, "cases": cases}
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
