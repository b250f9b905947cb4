"""Frozen facts about a machine. Heuristics and checks read these and nothing else.

Backends fill them by probing; tests build them by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

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
