"""Frozen facts about a machine. Heuristics and checks read these and nothing else.

Backends fill them by probing; tests build them by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from attngen.dtypes import DType


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A CPU as the Numba backend sees it.

    Attributes:
        isa: ``avx512``, ``avx2``, ``neon`` or ``generic``; generic code uses scalars only.
        vector_bytes: bytes in one vector register; 0 for ``generic``.
        vector_registers: architectural vector registers.
        l1_bytes, l2_bytes, l3_bytes: data cache sizes a core sees (0 if unknown).
        cores: cores this process may use.
        llvm_cpu, llvm_features: what machine code is generated for; part of the cache key.
    """

    isa: str
    vector_bytes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int
    llvm_cpu: str = ""
    llvm_features: str = ""

    @property
    def kind(self) -> str:
        """The name of this target family in specs and on the command line."""
        return "cpu"

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype`'s accumulator in one vector; 1 for ``generic``."""
        return max(1, self.vector_bytes // (8 if dtype.accumulator == "float64" else 4))


AVX512 = CpuTarget("avx512", 64, 32, 32 << 10, 1 << 20, 32 << 20, 2)
AVX2 = CpuTarget("avx2", 32, 16, 32 << 10, 512 << 10, 16 << 20, 2)
NEON = CpuTarget("neon", 16, 32, 64 << 10, 1 << 20, 32 << 20, 2)
GENERIC = CpuTarget("generic", 0, 16, 32 << 10, 256 << 10, 0, 2)


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """A generation of NVIDIA GPUs as the CUDA backend sees it.

    The limits are those of the CUDA programming guide's table of compute capabilities.

    Attributes:
        arch: what machine code is made for, such as ``sm_80``; ``sm_90a`` adds instructions that
            only this generation has.
        shared_bytes: shared memory that a block may ask for.
        sm_shared_bytes: shared memory of a multiprocessor; each block takes 1 KiB beside its own.
        registers: registers of 4 bytes that a thread may use.
        sm_registers: registers of a multiprocessor.
        sm_threads: threads that a multiprocessor holds.
    """

    arch: str
    shared_bytes: int
    sm_shared_bytes: int
    registers: int = 255
    sm_registers: int = 1 << 16
    sm_threads: int = 2048

    @property
    def kind(self) -> str:
        """The name of this target family in specs and on the command line."""
        return "cuda"

    @property
    def isa(self) -> str:
        """The name of this machine where backends are listed."""
        return self.arch

    def blocks(self, threads: int, registers: int, shared: int) -> int:
        """Blocks of so many threads, registers a thread and bytes that a multiprocessor holds."""
        by_registers = self.sm_registers // (threads * max(registers, 1))
        by_shared = self.sm_shared_bytes // (shared + 1024)
        return min(self.sm_threads // threads, by_registers, by_shared, 32)


Target: TypeAlias = CpuTarget | CudaTarget

SM_80 = CudaTarget("sm_80", 163 << 10, 164 << 10)
SM_86 = CudaTarget("sm_86", 99 << 10, 100 << 10, sm_threads=1536)
SM_89 = CudaTarget("sm_89", 99 << 10, 100 << 10, sm_threads=1536)
SM_90 = CudaTarget("sm_90", 227 << 10, 228 << 10)
SM_90A = CudaTarget("sm_90a", 227 << 10, 228 << 10)

CUDA_TARGETS: dict[str, CudaTarget] = {t.arch: t for t in (SM_80, SM_86, SM_89, SM_90, SM_90A)}
"""The GPUs that kernels are compiled for, by the name of their architecture."""
