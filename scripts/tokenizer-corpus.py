#!/usr/bin/env python3
"""Text in many languages and all of Unicode's characters, one case a line, for check-tokenizer.

usage: tokenizer-corpus.py OUT [--prose]
From what the machine has: the translations of installed programs (/usr/share/locale), this tree's sources,
HLO and trace files beside it (../shared); and made here: every code point in several surroundings, random
mixtures of scripts, spaces, digits and signs from a fixed seed, what the templates and added tokens of published
models look like. --prose: only sources and translations, as the benchmark wants it."""
import glob
import os
import random
import struct
import sys

PER_LANGUAGE = 40_000  # characters
PER_FILE = 60_000
SOURCES_MAX = 1_500_000


def translations(path):
    """The translated strings of a .mo file."""
    data = open(path, "rb").read()
    if len(data) < 28:
        return
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    count, _, at = struct.unpack(order + "III", data[8:20])
    for i in range(count):
        n, offset = struct.unpack_from(order + "II", data, at + 8 * i)
        text = data[offset : offset + n].decode("utf-8", "ignore").replace("\0", " ")
        if text and not text.startswith("Project-Id-Version"):
            yield text


def languages(out):
    for folder in sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES")):
        room = PER_LANGUAGE
        for mo in sorted(glob.glob(folder + "/*.mo"))[:6]:
            for text in translations(mo):
                out.extend(text.split("\n"))
                room -= len(text)
                if room < 0:
                    break
            if room < 0:
                break


def sources(out):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    room = SOURCES_MAX
    for pattern in ("README.md", "Makefile", "workloads/*.c", "harness/run/*.c", "schemas/*.json", "scripts/*",
                    "tests/data/tokenizer/variants.json", "../shared/data/hlo/*.hlo", "../shared/data/traces/*.json*",
                    "../shared/specs/*.md", "/usr/share/common-licenses/*"):
        for name in sorted(glob.glob(os.path.join(here, pattern))):
            if os.path.isfile(name) and room > 0:
                text = open(name, "rb").read(PER_FILE).decode("utf-8", "replace")
                out.extend(line[:4000] for line in text.split("\n"))
                room -= len(text)


def characters(out):
    for c in range(0x20, 0x110000):
        if 0xD800 <= c < 0xE000 or c == 0x7F or (0x30000 < c and c % 61):
            continue
        s = chr(c)
        out.append(f"a{s}b {s}1" if c % 3 == 0 else f"{s} {s}{s}e" if c % 3 == 1 else f" {s}\t{s}.")
    for base in range(0, 0x30000, 64):
        out.append("".join(chr(c) for c in range(max(base, 0x20), base + 64) if not 0xD800 <= c < 0xE000 and c != 0x7F))


def mixtures(out):
    r = random.Random(20260101)
    scripts = [(0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF),
               (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2000, 0x206F),
               (0x2190, 0x22FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F),
               (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0x1F900, 0x1F9FF)]
    words = ["the", "'s", "'LL", "n't", "http://", "x=1", "\t", "  ", "   ", "\r", "\u3000", "\u00a0", "123", "4567",
             "3.14", "\u0663\u0664", "<|im_start|>", "<|eot_id|>", "<start_of_turn>", "<s>", "</s>", "[INST]", "</think>",
             "<bos>", "<unk>", "<0x41>", "\u2581", "\u2581\u2581", "e\u0301", "\u212b", "\u1e9b\u0323", "\u0f43", "\ufffd",
             "\U0001f468\u200d\U0001f469", "\u0130", "\ufb01", "a" * 70, "\u6d4b" * 40, "=" * 90, " " * 60, "0" * 50]
    for _ in range(30_000):
        parts = []
        for _ in range(r.randint(1, 12)):
            if r.random() < 0.4:
                parts.append(r.choice(words))
            else:
                lo, hi = r.choice(scripts)
                parts.append("".join(chr(r.randint(lo, hi)) for _ in range(r.randint(1, 6))))
            if r.random() < 0.5:
                parts.append(" ")
        out.append("".join(parts))


def main():
    out = []
    languages(out)
    sources(out)
    if "--prose" not in sys.argv:
        characters(out)
        mixtures(out)
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as f:
        for line in out:
            f.write(line.replace("\n", " ") + "\n")


main()
