"""Halves as kernels read and write them: every bit pattern, every kind of rounding."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import njit

from attngen.backends.numba_cpu.probe import probe
from attngen.backends.numba_cpu.simd import simd_file
from attngen.backends.numba_cpu.storage import storage_files
from attngen.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType

pytestmark = pytest.mark.numba

# Storage type, lanes, and the machine that the code is for: `generic` has no instruction that
# converts float16.
VARIANTS: dict[str, tuple[DType, int, str]] = {
    f"{dtype.name}-{isa}-{lanes}": (dtype, lanes, isa)
    for dtype in (FLOAT16, BFLOAT16)
    for lanes, isa in ((16, "avx512"), (8, "avx2"), (4, "neon"), (1, "avx2"), (1, "generic"))
} | {"float16-generic-8": (FLOAT16, 8, "generic")}


class Converter:
    """A generated ``storage`` module, with loops over whole arrays around its operations."""

    def __init__(self, module: ModuleType, dtype: DType, lanes: int) -> None:
        self.dtype = dtype.numpy
        v_read, v_write, widen, narrow = (
            getattr(module, name) for name in ("v_read", "v_write", "widen", "narrow")
        )
        v_load, v_store = (getattr(module.simd, name) for name in ("v_load", "v_store"))

        @njit
        def read(halves: Any, floats: Any) -> None:
            for i in range(0, halves.size, lanes):
                v_store(floats, i, v_read(halves, i))

        @njit
        def write(floats: Any, halves: Any) -> None:
            for i in range(0, halves.size, lanes):
                v_write(halves, i, v_load(floats, i))

        @njit
        def read_one_by_one(halves: Any, floats: Any) -> None:
            for i in range(halves.size):
                floats[i] = widen(halves[i])

        @njit
        def write_one_by_one(floats: Any, halves: Any) -> None:
            for i in range(halves.size):
                halves[i] = narrow(floats[i])

        self.readers, self.writers = (read, read_one_by_one), (write, write_one_by_one)

    def check_reading(self, halves: Any) -> None:
        want = halves.astype(np.float32)
        for reader in self.readers:
            got = np.full(halves.size, 12345, np.float32)
            reader(halves.view(np.uint16), got)
            np.testing.assert_array_equal(got, want)
            number = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])

    def check_writing(self, floats: Any) -> None:
        with np.errstate(all="ignore"):
            want = floats.astype(self.dtype)
        nan = np.isnan(floats)
        for writer in self.writers:
            got = np.full(floats.size, 12345, np.uint16)
            writer(floats, got)
            wrong = (got != want.view(np.uint16)) & ~nan
            assert not wrong.any(), f"{floats[wrong][:5]!r} -> {got[wrong][:5]!r}"
            assert np.isnan(got.view(self.dtype)[nan]).all()


@pytest.fixture(scope="module", params=VARIANTS)
def converter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Converter]:
    dtype, lanes, isa = VARIANTS[request.param]
    if lanes > max(4, probe().lanes(FLOAT32)):
        pytest.skip("this machine's vectors are narrower")
    yield from converters(dtype, lanes, isa, tmp_path_factory.mktemp("generated"))


def converters(dtype: DType, lanes: int, isa: str, home: Path) -> Iterator[Converter]:
    name = f"storage_{dtype.name}_{isa}_{lanes}"
    (home / name).mkdir()
    (home / name / "__init__.py").touch()
    for file in (*storage_files(dtype, lanes, isa), simd_file(dtype, lanes, isa)):
        (home / name / file.path).write_text(file.text, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home)
        module = importlib.import_module(f"{name}.storage")
        module.simd = importlib.import_module(f"{name}.simd")  # type: ignore[attr-defined]
        yield Converter(module, dtype, lanes)
    for loaded in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[loaded]


def every_half(dtype: Any) -> Any:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def test_reading_every_bit_pattern(converter: Converter) -> None:
    converter.check_reading(every_half(converter.dtype))


def test_writing_back_what_was_read(converter: Converter) -> None:
    converter.check_writing(every_half(converter.dtype).astype(np.float32))


def test_rounding_between_every_two_neighbours(converter: Converter) -> None:
    """Half-way, and one float32 to either side of it: to the nearest, and to even between."""
    halves = every_half(converter.dtype)
    finite = np.unique(halves[np.isfinite(halves)].astype(np.float64))
    steps = np.diff(finite)
    beyond = [finite[-1] + steps[-1] / 2, finite[0] - steps[0] / 2]  # half-way to infinity
    with np.errstate(all="ignore"):
        middle = np.concatenate([finite[:-1] + steps / 2, beyond]).astype(np.float32)
        around = [middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
        floats = np.concatenate(around).astype(np.float32)
    converter.check_writing(padded(floats))


def test_rounding_random_bits(converter: Converter) -> None:
    rng = np.random.default_rng(1)
    converter.check_writing(rng.integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32))


def test_nan_stays_nan_whatever_its_payload(converter: Converter) -> None:
    exponent = np.uint32(0x7F800000)
    payloads = np.concatenate([1 << np.arange(23), [(1 << 23) - 1, 0x1FFF, 0xFFFF, 0x10001]])
    bits = np.concatenate([exponent | payloads, exponent | payloads | (1 << 31)])
    converter.check_writing(padded(bits.astype(np.uint32).view(np.float32)))


def padded(floats: Any) -> Any:
    """With copies of the first element, up to whole vectors of any width."""
    return np.concatenate([floats, np.full(-floats.size % 16, floats[0])])


def test_only_halves_need_the_module() -> None:
    assert not storage_files(FLOAT32, 16, "avx512")
    assert not storage_files(FLOAT64, 8, "avx512")


def test_float16_is_converted_by_instructions(tmp_path: Path) -> None:
    """And not by calls of a run-time library that a process may not have."""
    target = probe()
    if "+f16c" not in target.llvm_features:
        pytest.skip("this machine has no F16C")
    for converter in converters(FLOAT16, target.lanes(FLOAT16), target.isa, tmp_path):
        converter.check_writing(np.zeros(16, np.float32))
        converter.check_reading(np.zeros(16, np.float16))
        for function in (*converter.readers, *converter.writers):
            (code,) = function.inspect_asm().values()
            assert "vcvtph2ps" in code or "vcvtps2ph" in code
            assert "hfsf" not in code
            assert "sfhf" not in code
