"""Machine code of a generated CUDA package, and what the assembler says of it.

Input: the folder of a package, and a target. Output: :class:`MachineFigures`; the machine code
itself stays beside the package, where the package finds it. Needs neither a GPU nor a driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attngen import loader
from attngen.errors import TargetError
from attngen.targets import CudaTarget


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """What a kernel takes of a GPU: registers and local memory a thread, shared memory a block."""

    arch: str
    registers: int
    stack_bytes: int
    spilled_bytes: int
    shared_bytes: int
    threads: int

    def lines(self, target: CudaTarget) -> tuple[str, ...]:
        """The figures, one fact a line."""
        blocks = target.blocks(self.threads, self.registers, self.shared_bytes)
        return (
            f"{self.arch}: {self.registers} registers a thread, {self.threads} threads a block",
            f"{self.stack_bytes} bytes of stack, {self.spilled_bytes} bytes spilled",
            f"{self.shared_bytes} bytes of shared memory a block, so that a multiprocessor holds "
            f"{blocks} {'block' if blocks == 1 else 'blocks'}",
        )


def machine_figures(folder: Path, target: CudaTarget) -> MachineFigures:
    """Compile the package in `folder` for `target`, or find its machine code there.

    Raises:
        TargetError: what compiling for CUDA needs is not installed.
    """
    try:
        package = loader.load(folder)
        code = package.machine_code(target.arch)
    except ImportError as error:
        raise TargetError(
            f"compiling for CUDA needs packages that are not installed ({error}); "
            "pip install 'attngen[cuda]'"
        ) from error
    return MachineFigures(
        arch=code.arch,
        registers=code.registers,
        stack_bytes=code.stack_bytes,
        spilled_bytes=code.spilled_bytes,
        shared_bytes=code.shared_bytes,
        threads=code.threads,
    )
