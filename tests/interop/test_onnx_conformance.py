"""All of ONNX's cases, on compiled kernels, on emulated ones, in every layout, by the backend."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from compiling import ROOT
from filelock import FileLock
from interop.conformance import (
    CASES,
    LAYOUTS,
    SKIPPED,
    SMALLEST,
    compiler,
    digest,
    emulator,
    operator,
    running,
    tolerance,
)
from onnx.backend.test.runner import Runner

from attngen.interop.onnx import AttngenBackend
from attngen.interop.onnx.backend import unsupported

RUN = sorted(CASES.keys() - SKIPPED)
# Together they have each feature: both kinds of mask, a past of the usual length and of another,
# valid lengths, windows, a softcap, grouped heads, wide values, double precision, expressions of
# FlexAttention.
REPRESENTATIVE = (
    "test_attention_local_window_gqa_rank4_mask",
    "test_attention_3d_diff_heads_with_past_and_present",
    "test_attention_local_window_with_past",
    "test_attention_4d_causal_nonpad_attn_mask_composition",
    "test_flexattention_causal_mask",
    "test_flexattention_relative_positional",
)


def check(name, compile_spec, *, layout="as it comes") -> None:
    case = CASES[name]
    assert unsupported(case.model) is None  # what the backend refuses, pytest would skip
    prepared = AttngenBackend.prepare(case.model, compiler=compile_spec)
    for inputs, expected in case.data_sets:
        found = prepared.run([LAYOUTS[layout](array) for array in inputs])
        Runner.assert_similar_outputs(expected, list(found), tolerance(case), case.atol)


def test_every_case_runs_or_is_counted_among_the_skipped() -> None:
    counts = Counter(operator(case) for case in CASES.values())
    assert counts["Attention"] >= 93, "a newer onnx may have more"
    assert counts["FlexAttention"] >= 11
    assert SKIPPED.keys() <= CASES.keys()
    assert len(SKIPPED) == 0
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"{len(RUN)} of {len(CASES)} pass" in text, "the README has other counts"
    assert f"{len(SKIPPED)} are skipped" in text or not SKIPPED


@pytest.mark.numba
@pytest.mark.parametrize("name", RUN)
def test_compiled(name, kernel_cache: Path) -> None:
    """The kernels that a user gets; one node needs one or two, which its variants share."""
    with FileLock(kernel_cache / f"onnx-{digest(CASES[name])}.lock"):
        check(name, compiler(kernel_cache))
    for layout in LAYOUTS:
        for workers in (1, 2):
            with running(workers=workers):
                check(name, compiler(kernel_cache), layout=layout)


@pytest.mark.numba
@pytest.mark.parametrize("kernel", ["flash_forward", "split_kv"])
@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_compiled_with_the_smallest_tiles(name, kernel, kernel_cache: Path) -> None:
    compile_spec = compiler(kernel_cache, SMALLEST)
    for layout in LAYOUTS:
        for workers in (1, 2):
            with running(workers=workers, kernel=kernel):
                check(name, compile_spec, layout=layout)


@pytest.mark.parametrize("kernel", ["flash_forward", "split_kv"])
@pytest.mark.parametrize("name", RUN)
def test_emulated_with_the_smallest_tiles(name, kernel) -> None:
    compile_spec = emulator(kernel)
    for layout in LAYOUTS:
        check(name, compile_spec, layout=layout)


def test_strided_arrays_are_read_where_they_lie() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    for name, layout in LAYOUTS.items():
        np.testing.assert_array_equal(layout(array), array)
        assert layout(array).flags.c_contiguous == (name == "as it comes")
