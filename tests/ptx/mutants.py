"""Small mistakes made in PTX text: what a check is worth shows in whether it sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text that differs from the original in one instruction."""

    mistake: str
    line: int
    instruction: str
    text: str

    def __str__(self) -> str:
        return f"{self.mistake}, PTX line {self.line}: {self.instruction}"


# The mistake; the instruction that it befalls; what becomes of that.
MISTAKES: tuple[tuple[str, str, str], ...] = (
    ("barrier dropped", r"bar\.sync[^;]*;", ""),
    ("barrier dropped", r"bar\.warp\.sync[^;]*;", ""),
    ("wait dropped", r"cp\.async\.wait_\w+[^;]*;", ""),
    ("wait dropped", r"wgmma\.wait_group[^;]*;", ""),
    ("one group too few waited for", r"(cp\.async\.wait_group\s+)0;", r"\g<1>1;"),
    ("one group too few waited for", r"(cp\.async\.wait_group\s+)1;", r"\g<1>2;"),
    ("one group too few waited for", r"(wgmma\.wait_group\.sync\.aligned\s+)0;", r"\g<1>1;"),
    ("commit dropped", r"(?:cp\.async|wgmma)\.commit_group[^;]*;", ""),
    ("fence dropped", r"(?:fence\.proxy\.async|membar)[^;]*;", ""),
    ("swizzle or for xor", r"xor(\.b\d+\s)", r"or\1"),
    ("swizzle dropped", r"xor(\.b\d+\s+[^,;]+,[^,;]+),[^;]*;", r"mov\1;"),
    ("tile bound off by one", r"setp\.lt\.", "setp.le."),
    ("tile bound off by one", r"setp\.gt\.", "setp.ge."),
    ("tile bound off by one", r"setp\.le\.", "setp.lt."),
    ("tile bound off by one", r"setp\.ge\.", "setp.gt."),
)


def mutants(ptx: str, *mistakes: str) -> Iterator[Mutant]:
    """Every place's every mutant, or those of the named mistakes."""
    for mistake, pattern, replacement in MISTAKES:
        if mistakes and mistake not in mistakes:
            continue
        for match in re.finditer(pattern, ptx):
            start = ptx.rfind("\n", 0, match.start()) + 1
            line = ptx[start : ptx.index("\n", match.start())]
            if line.lstrip().startswith("//"):
                continue
            text = ptx[: match.start()] + match.expand(replacement) + ptx[match.end() :]
            number = ptx.count("\n", 0, match.start()) + 1
            yield Mutant(mistake, number, " ".join(line.split()), text)
