"""What the header of a CPU package says: its modules, and the decisions that shaped them."""

from __future__ import annotations

from attngen.backends.header import header
from attngen.ir.kernel import KernelIR, Projection, SourceFile
from attngen.ir.schedule import CpuSchedule
from attngen.targets import CpuTarget


def header_file(kernel: KernelIR, schedule: CpuSchedule, target: CpuTarget) -> SourceFile:
    """``__init__.py`` of the package for `kernel`."""
    ir = kernel.attention
    layer = ir.scope == "layer"
    projects = any(isinstance(part, Projection) for part in kernel.kernels)
    many = "online softmax over" if ir.activation is None else "weights and sums for"
    files = [
        ("entry.py", "checks nothing twice, picks a kernel by shape, pools workspaces"),
        ("flash_forward.py", f"prefill: {many} blocks of many query rows"),
        ("split_kv.py", "decoding: few query rows, keys split over the threads"),
    ]
    if projects:
        files.append(("projection.py", "the projections: a blocked matrix product"))
    if ir.inputs:
        files.append(("inputs.py", "the spec's tables, and side inputs as the kernels read them"))
    files += [
        ("simd.py", f"vectors of {schedule.lanes.value} lanes for {target.isa}"),
        ("sequences.py", "which queries and keys of the arrays belong together"),
        ("workers.py", "one worker a thread, arrays of any layout, workspaces"),
    ]
    unused = (*(() if projects else ("gemm_",)), *(() if layer else ("projection",)))
    return header(
        ir,
        title="multi-head attention layer" if layer else "multi-head attention",
        files=files,
        decisions=[d for d in schedule.decisions() if not d[0].startswith(unused)],
        regenerate=f"attngen compile {ir.name} -o DIR",
        exports=[
            "attend",
            "attention",
            *(("layer", "pack_weight", "project") if layer else ()),
        ],
    )
