"""What a run found: faults by kind and instruction, counts, bank conflicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from ptx.module import Instruction, Kernel


class Kind(StrEnum):
    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised"
    READ_ONLY = "read-only"
    RACE = "race"
    PENDING_COPY = "copy not waited for"
    ASYNC_PROXY = "fence.proxy.async missing"
    TENSOR_IN_FLIGHT = "wgmma in flight"
    DIVERGENT = "divergent"
    UNWRITTEN = "unwritten output"
    HANG = "hang"
    TRAP = "trap"
    BARRIER_STATE = "barrier state"


@dataclass
class Fault:
    """What went wrong at one instruction (None: found after the run), and how many times."""

    kind: Kind
    instruction: Instruction | None
    detail: str
    count: int

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        if self.instruction is None:
            return f"{self.kind}: {self.detail}{times}"
        source = f", source line {self.instruction.source}" if self.instruction.source else ""
        return (
            f"PTX line {self.instruction.line}{source}: {self.kind}: {self.detail}{times}\n"
            f"    {self.instruction.text[:160]}"
        )


@dataclass
class Traffic:
    """Accesses of one instruction to shared memory, in phases of 32 banks once each."""

    phases: int = 0
    extra: int = 0


class KernelFaultError(AssertionError):
    """A kernel did what no kernel may do."""


@dataclass
class Report:
    kernel: Kernel
    faults: dict[tuple[Kind, int], Fault] = field(default_factory=dict)
    traffic: dict[int, Traffic] = field(default_factory=dict)
    executed: Counter[str] = field(default_factory=Counter)  # instructions × threads, by opcode
    steps: int = 0  # instructions, however many threads took part
    unfenced_registers: int = 0  # registers given to wgmma that changed since wgmma.fence
    dangling_copies: int = 0  # cp.async that nobody waited for when its thread ended

    def add(self, kind: Kind, index: int, detail: str, count: int = 1) -> None:
        """Count a fault of instruction `index`; -1: not at an instruction."""
        if (known := self.faults.get((kind, index))) is not None:
            known.count += count
            return
        instruction = self.kernel.instructions[index] if index >= 0 else None
        self.faults[kind, index] = Fault(kind, instruction, detail, count)

    def count(self, kind: Kind) -> int:
        return sum(f.count for f in self.faults.values() if f.kind == kind)

    @property
    def kinds(self) -> set[Kind]:
        return {f.kind for f in self.faults.values()}

    def conflicts(self, in_loops_only: bool = False) -> int:
        """Phases of shared memory beyond what the accesses needed."""
        return sum(
            t.extra
            for index, t in self.traffic.items()
            if not in_loops_only or self.kernel.in_loop(index)
        )

    def conflict_lines(self) -> list[str]:
        """The instructions with bank conflicts, worst first."""
        worst = sorted(self.traffic.items(), key=lambda item: -item[1].extra)
        return [
            f"PTX line {self.kernel.instructions[i].line}: {t.extra} extra in {t.phases} phases: "
            f"{self.kernel.instructions[i].text[:120]}"
            for i, t in worst
            if t.extra
        ]

    def check(self) -> None:
        """Raise KernelFaultError that lists all faults, if there is one."""
        if self.faults:
            lines = [str(f) for f in self.faults.values()]
            raise KernelFaultError("\n".join([f"{self.kernel.name[:80]}:", *lines]))
