"""Running a kernel's PTX on NumPy arrays: the front door of this emulator.

    memory = GlobalMemory()
    x, out = memory.place(array), memory.reserve((n,), np.float32)
    report = launch(ptx, memory, grid=(4,), block=(128,), arguments=[x, out, n], outputs=[out])
    report.check()                 # races, bounds, uninitialised reads, missing waits, …
    result = memory.read(out)

It is a functional emulator with the memory model's rules, not a model of a GPU's timing. Written
from the PTX ISA; an instruction that it does not know is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from ptx.lanes import Array, Lanes, Size
from ptx.machine import Machine
from ptx.memory import GlobalMemory, Region
from ptx.module import Kernel, Module, PtxError, dtype_of
from ptx.parse import parse
from ptx.report import Kind, Report
from ptx.run import Run

Argument = Region | int | float | np.generic
STEPS = 2_000_000


def launch(
    ptx: str | Module,
    memory: GlobalMemory,
    *,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Argument],
    outputs: Sequence[Region] = (),
    entry: str | None = None,
    dynamic_shared: int = 0,
    noise: float = 1.0,
    steps: int = STEPS,
) -> Report:
    """Run one kernel over the whole grid.

    Args:
        ptx: its text; the module's only kernel, or the one named `entry`.
        memory: where the arguments' arrays lie. It keeps what the kernel writes.
        grid: blocks along x, y, z.
        block: threads along x, y, z.
        arguments: in the order of the kernel's parameters; a region stands for its address.
        outputs: every element of these is to be written.
        entry: a kernel's name.
        dynamic_shared: bytes of dynamic shared memory.
        noise: share of the documented error that approximate instructions (ex2.approx) show.
        steps: more instructions than this, and the kernel hangs.

    Returns:
        What was found and counted; `Report.check` raises if there was a fault.

    Raises:
        PtxError: the text is not understood, or the arguments do not fit the parameters.
    """
    module = parsed(ptx) if isinstance(ptx, str) else ptx
    kernel = module.kernels[entry] if entry else module.only
    lanes = Lanes(size(grid), size(block))
    if kernel.max_threads is not None and lanes.threads > kernel.max_threads:
        raise PtxError(f"{lanes.threads} threads, and .maxntid allows {kernel.max_threads}")
    machine = Machine(kernel, lanes, memory, bind(kernel, arguments), dynamic_shared, noise)
    report = Run(machine, steps).go()
    machine.memory.finish()
    for number, region in enumerate(outputs):
        missing = memory.unwritten(region)
        if missing.any():
            first = tuple(int(x) for x in np.argwhere(missing)[0])
            detail = f"output {number} of shape {region.shape}, first at {first}"
            report.add(Kind.UNWRITTEN, -1 - number, detail, int(missing.sum()))
    return report


@lru_cache(maxsize=64)
def parsed(ptx: str) -> Module:
    return parse(ptx)


def size(given: Sequence[int]) -> Size:
    x, y, z = (*given, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def bind(kernel: Kernel, arguments: Sequence[Argument]) -> dict[str, Array]:
    """Each parameter's bytes, by name."""
    parameters = kernel.parameters
    if len(parameters) != len(arguments):
        raise PtxError(f"{len(arguments)} arguments for {len(parameters)} parameters")
    bound = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        dtype = dtype_of(parameter.type)
        value = argument.address if isinstance(argument, Region) else argument
        whole = isinstance(value, (int, np.integer))
        if whole != (dtype.kind in "iu") and not (whole and dtype.kind == "f"):
            raise PtxError(f"{value!r} for {parameter.name} of type .{parameter.type}")
        if whole and dtype.kind in "iu":
            bits = int(value) & ((1 << 8 * dtype.itemsize) - 1)
            bound[parameter.name] = np.array([bits], f"u{dtype.itemsize}").view(dtype)
        else:
            bound[parameter.name] = np.array([value], dtype)
    return bound
