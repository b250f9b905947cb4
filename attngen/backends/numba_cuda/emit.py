"""KernelIR -> source package for CUDA: one context and one template a kernel.

Input: a program, the schedule and target it was made for. Output: a complete Python package that
imports NumPy, Numba, numba-cuda and cuda.bindings only. The same input gives the same bytes: no
time, host or path is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.backends.numba_cuda.flash import flash_file
from attngen.backends.numba_cuda.header import header_file
from attngen.backends.numba_cuda.machine import machine_files
from attngen.backends.numba_cuda.ptx import ptx_file
from attngen.backends.numba_cuda.side_inputs import KernelInput, kernel_inputs
from attngen.errors import InternalError
from attngen.ir.kernel import GridForward, KernelIR, SourceFile, SourcePackage
from attngen.ir.schedule import CudaSchedule
from attngen.render import render
from attngen.targets import CudaTarget


@dataclass(frozen=True, slots=True)
class EntryContext:
    """Variables of ``numba_cuda/entry.py.jinja``, which documents them."""

    dtype: str
    accumulator: str
    heads: int
    softmax: bool
    sink: bool
    inputs: tuple[KernelInput, ...]
    tables: bool
    given: bool


def emit(kernel: KernelIR, schedule: CudaSchedule, target: CudaTarget) -> SourcePackage:
    """Print `kernel` as a package named after its spec."""
    ir = kernel.attention
    inputs = kernel_inputs(ir)
    entry = EntryContext(
        dtype=ir.dtype.name,
        accumulator=ir.dtype.accumulator,
        heads=ir.heads,
        softmax=ir.activation is None,
        sink=ir.sink,
        inputs=inputs,
        tables=any(i.values is not None for i in inputs),
        given=any(i.values is None for i in inputs),
    )
    (forward,) = kernel.kernels
    if not isinstance(forward, GridForward):
        raise InternalError(f"a GPU has no kernel {type(forward).__name__}")
    files = (
        header_file(kernel, schedule, target),
        SourceFile("entry.py", render("numba_cuda/entry.py.jinja", entry)),
        flash_file(ir, forward),
        ptx_file(ir.dtype),
        *machine_files(),
    )
    return SourcePackage(ir.name, files)
