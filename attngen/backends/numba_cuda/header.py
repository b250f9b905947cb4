"""What the header of a CUDA package says: its modules, and the decisions that shaped them."""

from __future__ import annotations

from dataclasses import replace

from attngen.backends.header import header
from attngen.ir.kernel import KernelIR, SourceFile
from attngen.ir.schedule import CudaSchedule
from attngen.targets import CudaTarget


def header_file(kernel: KernelIR, schedule: CudaSchedule, target: CudaTarget) -> SourceFile:
    """``__init__.py`` of the package for `kernel`."""
    ir = kernel.attention
    notes = []
    if ir.scope == "layer":
        notes.append("projections are the caller's: this package computes the heads from q, k, v")
    return header(
        replace(ir, d_model=None),
        title="multi-head attention for CUDA",
        files=[
            ("entry.py", "describes device arrays to the kernel and launches it"),
            ("flash_forward.py", "online softmax, a block of threads for a block of query rows"),
            ("ptx.py", "shared memory, instructions and reductions that numba.cuda lacks"),
            ("build.py", "Python to machine code, without a GPU or a driver"),
            ("launch.py", "device arrays and launches through cuda.bindings"),
        ],
        decisions=schedule.decisions(),
        regenerate=f"attngen compile {ir.name} --target cuda --arch {target.arch} -o DIR",
        exports=["attend", "machine_code"],
        notes=notes,
    )
