"""Compiled kernels for tests: each spec is compiled once a session, whoever asks for it first.

All processes of a session share one cache folder (``kernel_cache`` in ``conftest.py``), and who
compiles holds a lock, so that pytest-xdist's workers do not compile the same kernels side by side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from closeness import assert_within
from filelock import FileLock

import attngen
from attngen.accuracy import core_bound, element_bounds
from attngen.attention import CoreAttention
from attngen.cache import Cache
from attngen.ir.attention import AttentionIR
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ("flash_forward", "split_kv")

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Kernels:
    """A compiled core, and its two kernels one by one."""

    attention: CoreAttention

    @cached_property
    def ir(self) -> AttentionIR:
        return self.attention._compiled.ir

    @property
    def short_rows(self) -> int:
        """Query rows that ``split_kv`` can take."""
        return self.attention._package.split_kv.MAX_ROWS // self.ir.group

    def arrays(self, batch: int, q_len: int, kv_len: int, seed: int = 0) -> tuple[Any, ...]:
        """Standard normal q, k, v, and a sink or None."""
        rng, ir = np.random.default_rng(seed), self.ir
        dtype = ir.dtype.numpy
        shapes = (
            (batch, q_len, ir.query_heads, ir.head_dim),
            (batch, kv_len, ir.key_heads, ir.head_dim),
            (batch, kv_len, ir.kv_heads, ir.value_dim),
        )
        q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        sink = rng.standard_normal(ir.heads).astype(ir.dtype.accumulator) if ir.sink else None
        return q, k, v, sink

    def run(
        self, kernel: str, q: Any, k: Any, v: Any, sink: Any = None, workers: int = 1
    ) -> tuple[Array, Array]:
        """(out, lse) of one kernel, into poisoned arrays."""
        batch, q_len, heads = q.shape[:3]
        out = np.full((batch, q_len, self.ir.heads, v.shape[3]), np.nan, q.dtype)
        lse = np.full((batch, heads, q_len), np.nan, self.ir.dtype.accumulator)
        self.run_into(kernel, q, k, v, sink, out, lse, workers)
        return out, lse

    def run_into(
        self, kernel: str, q: Any, k: Any, v: Any, sink: Any, out: Any, lse: Any, workers: int = 1
    ) -> None:
        """Run `kernel`, whichever `attend` would choose, with as many workers as are asked for."""
        package = self.attention._package
        with (
            mock.patch.object(package.split_kv, "can_take", return_value=kernel == "split_kv"),
            mock.patch.object(package.entry, "SERIAL_WORK", -1),
        ):
            package.attend(q, k, v, out, lse, sink, workers=workers)

    def check(self, arrays: tuple[Any, ...], out: Array, lse: Array, what: str = "") -> None:
        """Hold a result against the float64 reference."""
        q, k, v, sink = arrays
        want, want_lse = reference_attention(self.ir, q, k, v, sink)
        bound = core_bound(self.ir, q, k, v)
        assert_within(out, want, element_bounds(self.ir, bound, want), what)
        empty = np.isneginf(want_lse)
        np.testing.assert_array_equal(np.isneginf(lse), empty, err_msg=what)
        scale = bound / float(np.abs(v).max()) if v.size else 0.0
        tolerance = 1e-6 if lse.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(
            lse[~empty], want_lse[~empty], rtol=tolerance, atol=scale + tolerance, err_msg=what
        )
        empty = empty[:, :: self.ir.maps]  # the maps of a head see the same keys
        assert not out[empty.swapaxes(1, 2)].any(), f"{what}: empty rows are exactly 0"


def compile_once(
    cache: Path, spec: dict[str, Any], overrides: dict[str, Any] | None = None
) -> attngen.Attention:
    """The callable for `spec`, its machine code compiled or waited for."""
    chosen = tuple(ScheduleOverride("cpu", n, x) for n, x in (overrides or {}).items())
    with FileLock(cache / f"{spec['name']}.lock"):
        return attngen.compile(spec, overrides=chosen, cache=Cache(cache))


def kernels_once(
    cache: Path,
    spec: dict[str, Any],
    overrides: dict[str, Any] | None = None,
    compiled: tuple[str, ...] = KERNELS,
) -> Kernels:
    """The kernels of a core, each of `compiled` called once, so that it is compiled."""
    kernels = Kernels(compile_once(cache, spec, overrides))
    with FileLock(cache / f"{spec['name']}.lock"):
        for kernel in compiled:
            kernels.run(kernel, *kernels.arrays(1, 1, 1))
    return kernels


def run_script(script: str, *arguments: object, cache: Path, **environment: str) -> str:
    """Run `script` in a Python process of its own, where warnings are errors; its output."""
    done = start_script(script, *arguments, cache=cache, **environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def start_script(
    script: str, *arguments: object, cache: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What a process of its own gave, with attngen importable and `cache` as its cache."""
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "ATTNGEN_CACHE_DIR": str(cache),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@dataclass(frozen=True, eq=False)
class Placed:
    """An array as a view into a larger buffer."""

    buffer: Array
    view: Array
    inside: npt.NDArray[np.bool_]

    @property
    def outside(self) -> Array:
        """The bytes of the elements that do not belong to the view."""
        return self.buffer[~self.inside].view(np.uint8)


GUARD = 67  # elements before and after; odd, so that nothing but elements is aligned


def place(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: npt.DTypeLike, fill: float
) -> Placed:
    """An array of `shape` with `strides` in elements, in a buffer that is full of `fill`."""
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low, high = sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)
    buffer = np.full(high - low + 1 + 2 * GUARD, fill, dtype)
    inside = np.zeros(buffer.size, np.bool_)
    views = []
    for whole in (buffer, inside):
        in_bytes = tuple(s * whole.itemsize for s in strides)
        start = whole[GUARD - low :]
        views.append(np.lib.stride_tricks.as_strided(start, shape, in_bytes))
    views[1][...] = True
    return Placed(buffer, views[0], inside)


def dense(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of an array whose axes vary in this order, the slowest first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return tuple(strides)


Layout = Callable[[tuple[int, ...]], tuple[int, ...]]
LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda shape: dense(shape, (0, 1, 2, 3)),
    "fortran": lambda shape: dense(shape, (3, 2, 1, 0)),
    "heads-first": lambda shape: dense(shape, (0, 2, 1, 3)),
    "length-last": lambda shape: dense(shape, (2, 0, 3, 1)),
    "reversed": lambda shape: tuple(-s for s in dense(shape, (0, 1, 2, 3))),
    "rows-reversed": lambda shape: (
        lambda s: (s[0], -s[1], s[2], s[3])  # each row is contiguous, in falling order
    )(dense(shape, (0, 1, 2, 3))),
    "every-third": lambda shape: tuple(3 * s for s in dense(shape, (0, 1, 2, 3))),
    "padded-rows": lambda shape: dense((*shape[:3], shape[3] + 5), (0, 1, 2, 3)),
}
