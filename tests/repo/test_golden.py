"""Golden texts: the whole package of the reference spec, header and kernels of every other, and
tile maps and pictures of some.

They are for machines described by hand (``attngen.targets``), so every machine agrees. Of the CUDA
backend: the package of the reference spec, and the kernels of a few others.
``pytest tests/repo --update-golden`` writes them anew; read the difference before committing it.
"""

from __future__ import annotations

import difflib
from functools import cache

import pytest
from repo.generated import GOLDEN, SPECS, package, stages

from attngen.ir.printer import kernel_text
from attngen.pictures import Language, draw_dataflow
from attngen.tile_maps import tile_map

ISA = "avx512"
REFERENCE = "mha_4096"
GPU = "sm_80"
ON_GPU = ("alibi", "documents", "everything")
MAPS = {"mha_4096": 512, "window": 1024, "document": 1024, "natten_2d": 2048}
PICTURES: tuple[tuple[str, Language], ...] = (
    (REFERENCE, "en"),
    ("everything", "en"),
    ("gpt_oss_20b_local", "zh"),
)


@cache
def golden_texts() -> dict[str, str]:
    """Path below tests/golden -> text."""
    texts = {f"{REFERENCE}/{file.path}": file.text for file in package(REFERENCE, ISA).files}
    for spec in SPECS:
        header = next(f.text for f in package(spec, ISA).files if f.path == "__init__.py")
        kernels = kernel_text(stages(spec, ISA).kernel)
        texts[f"{spec}.txt"] = f"{header}\n{'-' * 100}\n\n{kernels.rstrip()}\n"
    for spec, length in MAPS.items():
        texts[f"maps/{spec}.txt"] = tile_map(stages(spec, ISA), length).to_text() + "\n"
    for spec, language in PICTURES:
        drawn = draw_dataflow(stages(spec, ISA).ir, language)
        texts[f"pictures/{spec}.{language}.svg"] = drawn
    texts |= {f"cuda/{REFERENCE}/{file.path}": file.text for file in package(REFERENCE, GPU).files}
    for spec in ON_GPU:
        (kernel,) = (f for f in package(spec, GPU).files if f.path == "flash_forward.py")
        texts[f"cuda/{spec}.py"] = kernel.text
    return texts


TEXTS = sorted(golden_texts())


def test_nothing_is_left_over(update_golden: bool) -> None:
    found = {
        path.relative_to(GOLDEN).as_posix(): path for path in GOLDEN.rglob("*") if path.is_file()
    }
    stale = sorted(set(found) - set(TEXTS))
    if update_golden:
        for name in stale:
            found[name].unlink()
    else:
        assert not stale, "nothing generates these any more"


@pytest.mark.parametrize("name", TEXTS)
def test_golden(name: str, update_golden: bool) -> None:
    path, text = GOLDEN / name, golden_texts()[name]
    if update_golden:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    kept = path.read_text("utf-8") if path.exists() else ""
    difference = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), f"golden/{name}", "generated now", lineterm="", n=1
    )
    assert kept == text, "\n".join(
        ["after reading the difference: pytest tests/repo --update-golden", *list(difference)[:80]]
    )
