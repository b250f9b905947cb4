"""What this machine can do at most: its rate of fused multiply-adds and of bytes from memory.

Input: a target (which gives the vector width), a dtype and a number of threads. Output: FLOP/s and
bytes/s, measured, the best of several short runs. Every share of a peak that is reported anywhere
is a share of these numbers. Needs about 0.1 s a measurement, plus a compilation of half a second.

The measuring loops run in plain Python threads without the GIL, so Numba's threading layer and the
thread settings of other libraries stay as they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from attngen.dtypes import FLOAT32, DType
from attngen.targets import CpuTarget

CHAINS = 12  # independent sums: two units × four to six cycles, and it fits sixteen registers
_UNROLL = 4
_RUN_SECONDS = 0.02
_RUNS = 5
_MIN_STREAM_BYTES = 64 << 20
_MAX_STREAM_BYTES = 512 << 20


def measure_fma(target: CpuTarget, *, dtype: DType = FLOAT32, threads: int = 1) -> float:
    """The peak of `threads` cores in FLOP/s of `dtype`'s accumulator, a multiply-add being two."""
    return _measure_fma(target.vector_bytes, target.isa != "generic", dtype.accumulator, threads)


def measure_bandwidth(target: CpuTarget, *, threads: int = 1) -> float:
    """Bytes/s that `threads` cores together read from memory, in order, past every cache."""
    size = min(max(4 * target.l3_bytes, _MIN_STREAM_BYTES), _MAX_STREAM_BYTES)
    return _measure_bandwidth(size, threads)


@cache
def _measure_fma(vector_bytes: int, fused: bool, scalar: str, threads: int) -> float:
    lanes = max(1, vector_bytes // np.dtype(scalar).itemsize)
    kernel = _fma_kernel(lanes, fused, scalar)
    count = _calibrate(lambda n: kernel(n, 0.5))
    flop = 2.0 * lanes * CHAINS * _UNROLL * count
    best = 0.0
    for _ in range(_RUNS):
        spans = _in_parallel(lambda _: kernel(count, 0.5), threads)
        best = max(best, sum(flop / span.processor for span in spans))
    return best


@cache
def _measure_bandwidth(size: int, threads: int) -> float:
    words = np.ones(size // 8, dtype=np.int64)
    parts = np.array_split(words, threads)
    _sum_words(words[:8])
    best = 0.0
    for _ in range(_RUNS):
        spans = _in_parallel(lambda i: _sum_words(parts[i]), threads)
        seconds = max(span.end for span in spans) - min(span.start for span in spans)
        best = max(best, words.nbytes / seconds)
    return best


def _calibrate(run: Callable[[int], object]) -> int:
    """How many iterations take about `_RUN_SECONDS`."""
    count = 1000
    while True:
        start = time.perf_counter()
        run(count)
        seconds = time.perf_counter() - start
        if seconds > _RUN_SECONDS / 4:
            return max(1, int(count * _RUN_SECONDS / seconds))
        count *= 4


@dataclass(frozen=True, slots=True)
class _Span:
    """When a thread worked; `processor` leaves out the time in which another process ran."""

    start: float
    end: float
    processor: float


def _in_parallel(work: Callable[[int], object], threads: int) -> list[_Span]:
    """Run ``work(0) … work(threads - 1)`` at the same time."""
    barrier = threading.Barrier(threads)
    spans: list[_Span] = []

    def task(index: int) -> None:
        barrier.wait()
        start, processor = time.perf_counter(), _processor_seconds()
        work(index)
        processor = _processor_seconds() - processor
        spans.append(_Span(start, time.perf_counter(), processor))

    others = [threading.Thread(target=task, args=(i,)) for i in range(1, threads)]
    for other in others:
        other.start()
    task(0)
    for other in others:
        other.join()
    return spans


_COARSE = time.get_clock_info("thread_time").resolution > 1e-6
_processor_seconds = time.perf_counter if _COARSE else time.thread_time


@njit(nogil=True)
def _sum_words(words: Any) -> Any:  # pragma: no cover - compiled
    total = 0
    for i in range(words.size):  # integers: LLVM may reorder, so it vectorises and unrolls
        total += words[i]
    return total


@cache
def _fma_kernel(lanes: int, fused: bool, scalar: str) -> Callable[[int, float], float]:
    """``kernel(count, x)``: `count` × `_UNROLL` × `CHAINS` steps ``sum = sum * x + x``."""
    chains = _fma_chains(lanes, fused, getattr(types, scalar))
    cast = getattr(np, scalar)

    @njit(nogil=True)
    def kernel(count: Any, x: Any) -> Any:  # pragma: no cover - compiled
        return chains(count, cast(x))

    kernel(1, 0.5)
    return kernel


def _fma_chains(lanes: int, fused: bool, scalar: Any) -> Any:
    """The measuring loop as one intrinsic, so that nothing but its multiply-adds is in it."""
    element = ir.DoubleType() if scalar == types.float64 else ir.FloatType()
    vector = element if lanes == 1 else ir.VectorType(element, lanes)
    suffix = "f64" if scalar == types.float64 else "f32"
    name = f"llvm.fma.{suffix}" if lanes == 1 else f"llvm.fma.v{lanes}{suffix}"
    zero = ir.Constant(ir.IntType(32), 0)

    def splat(builder: Any, x: Any) -> Any:
        if lanes == 1:
            return x
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), x, zero)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)

    @intrinsic
    def chains(_typing: Any, _count: Any, _factor: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            fma = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call] # ships no types
                builder.module, ir.FunctionType(vector, [vector] * 3), name
            )

            def step(total: Any, factor: Any) -> Any:
                if fused:
                    return builder.call(fma, [total, factor, factor])
                return builder.fadd(builder.fmul(total, factor), factor)

            factor = splat(builder, args[1])
            slots = [
                cgutils.alloca_once(builder, vector)  # type: ignore[no-untyped-call]
                for _ in range(CHAINS)
            ]
            for i, slot in enumerate(slots):  # different starts, or equal chains would be merged
                start = builder.fadd(args[1], ir.Constant(element, float(i)))
                builder.store(splat(builder, start), slot)
            with cgutils.for_range(builder, args[0]):
                for slot in slots * _UNROLL:
                    builder.store(step(builder.load(slot), factor), slot)
            total = builder.load(slots[0])
            for slot in slots[1:]:
                total = builder.fadd(total, builder.load(slot))
            return total if lanes == 1 else builder.extract_element(total, zero)

        return scalar(types.intp, scalar), generate

    return chains
