#!/usr/bin/env python3
"""Writes the tokenizer tables of a GGUF file (tokenizer.ggml.*) as compressed JSON, so that tests
need no model file:  make_tables.py MODEL.gguf OUT.json.xz    (needs: gguf)"""
import json
import lzma
import sys

from gguf import GGUFReader

fields = {k: v.contents() for k, v in GGUFReader(sys.argv[1]).fields.items()}
prefix = "tokenizer.ggml."
tables = {k[len(prefix):]: v for k, v in fields.items() if k.startswith(prefix)}
data = json.dumps(tables, ensure_ascii=False, separators=(",", ":"), default=int).encode()
with open(sys.argv[2], "wb") as f:
    f.write(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
print({k: v for k, v in tables.items() if not isinstance(v, list)})
