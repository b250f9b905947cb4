"""KernelIR -> source package: one context and one template a kernel.

Input: a program, the schedule and target it was made for. Output: a complete Python package that
imports NumPy and Numba only. The same input gives the same bytes: no time, host or path is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.backends.numba_cpu.flash import flash_file
from attngen.backends.numba_cpu.header import header_file
from attngen.backends.numba_cpu.projection import projection_file
from attngen.backends.numba_cpu.side_inputs import inputs_files
from attngen.backends.numba_cpu.simd import simd_file
from attngen.backends.numba_cpu.split import split_file
from attngen.backends.numba_cpu.storage import storage_files
from attngen.backends.numba_cpu.workers import sequences_file, workers_file
from attngen.errors import InternalError
from attngen.ir.attention import AttentionIR
from attngen.ir.kernel import (
    FlashForward,
    Kernel,
    KernelIR,
    MaskPlan,
    Projection,
    SourceFile,
    SourcePackage,
    SplitKV,
)
from attngen.ir.schedule import CpuSchedule
from attngen.render import render
from attngen.targets import CpuTarget


@dataclass(frozen=True, slots=True)
class EntryContext:
    """Variables of ``entry.py.jinja``, which documents them."""

    dtype: str
    storage: str
    heads: int
    kv_heads: int
    softmax: bool
    difference: bool
    sink: bool
    inputs: tuple[str, ...]
    layer: bool
    d_model: int
    generated_projection: bool


def emit(kernel: KernelIR, schedule: CpuSchedule, target: CpuTarget) -> SourcePackage:
    """Print `kernel` as a package named after its spec."""
    ir, lanes = kernel.attention, schedule.lanes.value
    entry = EntryContext(
        dtype=ir.heads_dtype.name,
        storage=ir.dtype.name if ir.dtype.is_half else "",
        heads=ir.heads,
        kv_heads=ir.kv_heads,
        softmax=ir.activation is None,
        difference=ir.difference is not None,
        sink=ir.sink,
        inputs=tuple(side.name for side in ir.inputs),
        layer=ir.scope == "layer",
        d_model=ir.d_model or 0,
        generated_projection=schedule.projection.value == "generated",
    )
    files = (
        header_file(kernel, schedule, target),
        SourceFile("entry.py", render("numba_cpu/entry.py.jinja", entry)),
        *inputs_files(ir, _mask(kernel)),
        *(_kernel_file(ir, part) for part in kernel.kernels),
        simd_file(ir.dtype, lanes, target.isa if lanes > 1 else "scalar"),
        *storage_files(ir.dtype, lanes, target.isa),
        sequences_file(),
        workers_file(ir.dtype),
    )
    return SourcePackage(ir.name, files)


def _kernel_file(ir: AttentionIR, kernel: Kernel) -> SourceFile:
    match kernel:
        case FlashForward():
            return flash_file(ir, kernel)
        case SplitKV():
            return split_file(ir, kernel)
        case Projection():
            return projection_file(kernel)
        case _:
            raise InternalError(f"a CPU has no kernel {type(kernel).__name__}")


def _mask(kernel: KernelIR) -> MaskPlan | None:
    """The mask of the attention kernels; they all have the same."""
    return next(part.mask for part in kernel.kernels if not isinstance(part, Projection))
