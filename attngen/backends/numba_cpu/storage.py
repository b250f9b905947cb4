"""The context of the template for halves: arrays of float16 and bfloat16 as the kernels see them.

Input: a storage type, a vector width, and whether the machine converts float16. Output: the
package's ``storage.py``; a package whose arrays hold the type of the sums has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.dtypes import BFLOAT16, DType
from attngen.ir.kernel import SourceFile
from attngen.render import render


@dataclass(frozen=True, slots=True)
class StorageContext:
    """Variables of ``storage.py.jinja``, which documents them."""

    storage: str
    lanes: int
    bfloat: bool
    converts: bool


def storage_files(dtype: DType, lanes: int, isa: str) -> tuple[SourceFile, ...]:
    """``storage.py``, where `dtype` is a half.

    Args:
        dtype: what arrays hold.
        lanes: elements in a vector; 1 for scalars.
        isa: of the target. All vector instruction sets convert float16: AVX-512 includes F16C, and
            a machine without it is not taken for AVX2.
    """
    if not dtype.is_half:
        return ()
    context = StorageContext(dtype.name, lanes, dtype == BFLOAT16, isa != "generic")
    return (SourceFile("storage.py", render("numba_cpu/storage.py.jinja", context)),)
