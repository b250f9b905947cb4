"""The backend of a target: who schedules for it and who prints its kernels.

A backend is imported when it is first asked for something, so that a CPU's user pays nothing for
CUDA, and a program that finds its kernels in the cache needs no templates.
"""

from __future__ import annotations

from collections.abc import Sequence

from attngen.errors import InternalError
from attngen.ir.attention import AttentionIR
from attngen.ir.kernel import KernelIR, SourcePackage
from attngen.ir.schedule import CpuSchedule, CudaSchedule, Schedule
from attngen.spec.model import ScheduleOverride
from attngen.targets import CpuTarget, CudaTarget, Target


def propose(
    ir: AttentionIR, target: Target, overrides: Sequence[ScheduleOverride] = ()
) -> Schedule:
    """A legal schedule for `ir` on `target`.

    Raises:
        SpecError: overrides are illegal; each is named with its place and what would be legal.
    """
    match target:
        case CpuTarget():
            from attngen.backends.numba_cpu import scheduling as cpu

            return cpu.propose(ir, target, overrides)
        case CudaTarget():
            from attngen.backends.numba_cuda import scheduling as cuda

            return cuda.propose(ir, target, overrides)


def emit(kernel: KernelIR, schedule: Schedule, target: Target) -> SourcePackage:
    """The source package of `kernel`."""
    match target, schedule:
        case CpuTarget(), CpuSchedule():
            from attngen.backends.numba_cpu import emit as cpu

            return cpu.emit(kernel, schedule, target)
        case CudaTarget(), CudaSchedule():
            from attngen.backends.numba_cuda import emit as cuda

            return cuda.emit(kernel, schedule, target)
        case _:
            raise InternalError(f"a {target.kind} target has another schedule")
