#!/usr/bin/env python3
"""Rules of the house that a compiler does not check.

Include arrows (docs/architecture.md): cli -> server -> engine -> scheduler -> block_manager -> base,
cli -> simulator -> scheduler and engine -> kernels -> base; only proto's users know Protobuf and
gRPC. Also: file length, banned calls, and headers that open with a comment.

usage: conventions_test.py ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()) if len(sys.argv) > 1 else pathlib.Path(".")

# Folder -> folders whose headers it may include.
MAY_INCLUDE = {
    "base": {"base"},
    "kernels": {"kernels", "base"},
    "block_manager": {"block_manager", "base"},
    "scheduler": {"scheduler", "block_manager", "base"},
    "simulator": {"simulator", "scheduler", "block_manager", "base"},
    "engine": {"engine", "scheduler", "block_manager", "kernels", "base"},
    "server": {"server", "engine", "scheduler", "block_manager", "kernels", "base", "proto"},
    "cli": {"cli", "server", "simulator", "engine", "scheduler", "block_manager", "kernels", "base",
            "proto"},
}
KNOWS_GRPC = {"server", "cli"}
MAX_LINES = 600
# Pattern -> (why, folders or files where it is fine).
BANNED = {
    r"\bgetenv\s*\(": ("the environment is read in cli/ only", {"cli"}),
    r"\b(rand|srand)\s*\(": ("random numbers come from base/philox.h", set()),
    r"\bstd::cout\b|\bprintf\s*\(": ("only cli/ prints to standard output", {"cli"}),
    r"\bsleep_for\b|\busleep\s*\(": ("nothing sleeps; wait on a condition or inject a Clock",
                                     set()),
    r"\busing namespace std\b": ("name what you use", set()),
    r"_mm\w*_(rcp|rsqrt)\w*\s*\(": ("approximations differ between processors", set()),
}
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]', re.M)
TOP = re.compile(
    r"^(base|kernels|block_manager|scheduler|simulator|engine|server|cli|proto|quire/v1)/")


def sources():
    for folder in MAY_INCLUDE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield folder, path, path.read_text(encoding="utf-8")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


class Conventions(unittest.TestCase):
    def assert_no(self, faults):
        self.assertFalse(faults, "\n" + "\n".join(faults))

    def test_there_are_sources(self):
        self.assertGreater(sum(1 for _ in sources()), 20)

    def test_includes_follow_the_arrows(self):
        faults = []
        for folder, path, text in sources():
            for header in INCLUDE.findall(text):
                top = TOP.match(header)
                if top:
                    target = top.group(1).replace("quire/v1", "proto")
                    if target not in MAY_INCLUDE[folder]:
                        faults.append(f"{path}: {folder} must not include {header}")
                elif re.match(r"(grpcpp|grpc|google/protobuf)/", header) and folder not in KNOWS_GRPC:
                    faults.append(f"{path}: only server and cli know gRPC, not {folder}")
                elif header.startswith("."):
                    faults.append(f"{path}: include from the root, not {header}")
        self.assert_no(faults)

    def test_pure_text_and_sampling_know_no_engine(self):
        faults = []
        for part, allowed in (("engine/text", ("engine/text/",)),
                              ("engine/sampling", ("engine/sampling/", "engine/text/"))):
            for path in sorted((ROOT / part).rglob("*")):
                if path.suffix in (".h", ".cc"):
                    for header in INCLUDE.findall(path.read_text(encoding="utf-8")):
                        if header.startswith("engine/") and not header.startswith(allowed):
                            faults.append(f"{path}: {part} must not include {header}")
        self.assert_no(faults)

    def test_only_the_model_reader_knows_file_formats(self):
        faults = [f"{path}: file formats belong to engine/model"
                  for folder, path, text in sources()
                  if "engine/model" not in str(path)
                  and re.search(r'#include "engine/model/(gguf|safetensors)', text)]
        self.assert_no(faults)

    def test_files_have_one_idea(self):
        self.assert_no([f"{path}: {lines} lines, at most {MAX_LINES}"
                        for _, path, text in sources()
                        if (lines := text.count("\n")) > MAX_LINES])

    def test_headers_open_with_their_contract(self):
        self.assert_no([f"{path}: a header opens with a comment that says what it is"
                        for _, path, text in sources()
                        if path.suffix == ".h" and not text.startswith("//")])

    def test_headers_are_guarded(self):
        self.assert_no([f"{path}: no #pragma once" for _, path, text in sources()
                        if path.suffix == ".h" and "#pragma once" not in text])

    def test_banned_calls(self):
        faults = []
        for folder, path, text in sources():
            code = without_comments(text)
            for pattern, (why, fine) in BANNED.items():
                if folder not in fine and re.search(pattern, code):
                    faults.append(f"{path}: {why} ({re.search(pattern, code).group(0)})")
        self.assert_no(faults)

    def test_no_loose_ends(self):
        self.assert_no([f"{path}: TODO without an issue" for _, path, text in sources()
                        if re.search(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", text)])

    def test_the_catalogue_names_tests_that_exist(self):
        faults = []
        rows = re.findall(r"^\| (C\d+) \| [^|]+ \| (.*) \|$",
                          (ROOT / "tests/catalogue.md").read_text(encoding="utf-8"), re.M)
        self.assertGreater(len(rows), 100)
        for row, cell in rows:
            if "MISSING" in cell:
                faults.append(f"{row}: no test and no reason")
            for file, suite, name in re.findall(r"`([^`]+)`(?: (\w+)\.(\w+))?", cell):
                path = ROOT / file
                text = path.read_text(encoding="utf-8") if path.is_file() else ""
                if not re.search(rf"(?<![A-Za-z0-9]){row}(?![0-9])", text):
                    faults.append(f"{row}: {file} does not mention it")
                if name and not re.search(rf"\(\s*{suite},\s*{name}\b", text):
                    faults.append(f"{row}: {file} has no test {suite}.{name}")
        self.assert_no(faults)

    def test_no_test_is_switched_off(self):
        self.assert_no([f"{path}: {test}" for path in sorted((ROOT / "tests").rglob("*.cc"))
                        for test in re.findall(r"\bDISABLED_\w+",
                                               path.read_text(encoding="utf-8"))])

    def test_top_folders_have_a_readme(self):
        folders = list(MAY_INCLUDE) + ["proto", "benchmarks", "tests", "docs", "scripts",
                                       "cmake"]
        self.assert_no([f"{folder}/README.md is missing" for folder in folders
                        if not (ROOT / folder / "README.md").is_file()])


if __name__ == "__main__":
    unittest.main(verbosity=2)
