"""Arrays of any strides, and nothing read or written but their elements.

Inputs lie in buffers full of NaN, outputs in buffers whose other bytes must stay; both are larger
than the views that kernels get. A last test puts arrays against pages that cannot be touched.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from compiling import KERNELS, LAYOUTS, Kernels, dense, kernels_once, place, run_script

pytestmark = [pytest.mark.numba, pytest.mark.slow]

# In test_compiled_reference.py too, so that they are compiled once.
SPECS = {
    "gqa_causal": {"heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True},
    "halves": {"heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True, "dtype": "float16"},
    "band": {
        "heads": 2,
        "head_dim": 9,
        "value_dim": 13,
        "causal": "top_left",
        "window": {"left": 11, "right": 5},
    },
}


@pytest.fixture(scope="module", params=SPECS)
def kernels(request: pytest.FixtureRequest, kernel_cache: Path) -> Kernels:
    return kernels_once(kernel_cache, {"name": request.param, **SPECS[request.param]})


def lengths(kernels: Kernels, kernel: str) -> tuple[int, int]:
    return (kernels.short_rows if kernel == "split_kv" else 53), 300


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides_and_nothing_beyond(kernels: Kernels, layout: str, kernel: str) -> None:
    arrays = kernels.arrays(2, *lengths(kernels, kernel), 1)
    q, k, v, _ = arrays
    want, want_lse = kernels.run(kernel, *arrays)
    strides = [LAYOUTS[layout](a.shape) for a in (q, k, v)]
    if kernel == "split_kv" and strides[1][3] != 1:  # what it leaves to the other kernel
        strides[1:] = [dense(a.shape, (0, 2, 1, 3)) for a in (k, v)]
    placed = [place(a.shape, s, a.dtype, np.nan) for a, s in zip((q, k, v), strides, strict=True)]
    for p, a in zip(placed, (q, k, v), strict=True):
        p.view[...] = a
        p.buffer.flags.writeable = p.view.flags.writeable = False
    before = [p.buffer.copy() for p in placed]
    out = place(want.shape, LAYOUTS[layout](want.shape), want.dtype, 12345.0)
    out.view[...] = np.nan
    others = out.outside.copy()
    lse = place(want_lse.shape, dense(want_lse.shape, (0, 1, 2)), want_lse.dtype, 12345.0)
    lse_others = lse.outside.copy()

    kernels.run_into(kernel, *(p.view for p in placed), None, out.view, lse.view)

    np.testing.assert_array_equal(out.view, want)
    np.testing.assert_array_equal(lse.view, want_lse)
    np.testing.assert_array_equal(out.outside, others)
    np.testing.assert_array_equal(lse.outside, lse_others)
    for p, buffer in zip(placed, before, strict=True):
        np.testing.assert_array_equal(p.buffer.view(np.uint8), buffer.view(np.uint8))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("q_len", [1, 40])
def test_the_callable_with_every_layout(kernels: Kernels, layout: str, q_len: int) -> None:
    arrays = kernels.arrays(2, q_len, 90, 4)
    placed = [place(a.shape, LAYOUTS[layout](a.shape), a.dtype, np.nan) for a in arrays[:3]]
    for p, a in zip(placed, arrays[:3], strict=True):
        p.view[...] = a
    shape = (*arrays[0].shape[:3], kernels.ir.value_dim)
    out = place(shape, LAYOUTS[layout](shape), arrays[0].dtype, 12345.0)
    others = out.outside.copy()
    result, lse = kernels.attention(*(p.view for p in placed), out=out.view, return_lse=True)
    assert result is out.view
    kernels.check(arrays, result, lse)
    np.testing.assert_array_equal(out.outside, others)


@pytest.mark.parametrize("kernel", KERNELS)
def test_strides_of_zero(kernels: Kernels, kernel: str) -> None:
    q, k, v, _ = kernels.arrays(2, *lengths(kernels, kernel), 2)
    for axis in (0, 1, 2):
        one = (slice(None),) * axis + (slice(0, 1),)
        shared = [np.broadcast_to(a[one], a.shape) for a in (q, k, v)]
        copies = [a.copy() for a in shared]
        out, lse = kernels.run(kernel, *shared)
        kernels.check((*copies, None), out, lse, f"axis {axis}")
    shared = [np.broadcast_to(a[..., :1], a.shape) for a in (q, k, v)]
    kernels.check((*shared, None), *kernels.run("flash_forward", *shared))


def test_views_of_one_fused_array(kernels: Kernels) -> None:
    ir = kernels.ir
    widths = [ir.heads * ir.head_dim, ir.kv_heads * ir.head_dim, ir.kv_heads * ir.value_dim]
    rng = np.random.default_rng(3)
    fused = rng.standard_normal((2, 45, sum(widths))).astype(ir.dtype.numpy)
    before = fused.copy()
    q, k, v = np.split(fused, np.cumsum(widths)[:2], axis=-1)
    q = q.reshape(2, 45, ir.heads, -1)
    k = k.reshape(2, 45, ir.kv_heads, -1)
    v = v.reshape(2, 45, ir.kv_heads, -1)
    assert all(np.shares_memory(a, fused) for a in (q, k, v))
    out, lse = kernels.attention(q, k, v, return_lse=True)
    kernels.check((q, k, v, None), out, lse)
    np.testing.assert_array_equal(fused, before)


def test_memory_mapped_files(kernels: Kernels, tmp_path: Path) -> None:
    arrays = kernels.arrays(1, 30, 50, 6)
    mapped = []
    for name, array in zip("qkv", arrays[:3], strict=True):
        path = tmp_path / name
        path.write_bytes(bytes(64) + array.tobytes())
        mapped.append(np.memmap(path, array.dtype, "r", offset=64, shape=array.shape))
    kernels.check(arrays, *kernels.attention(*mapped, return_lse=True))


GUARDED_PAGES = """
    import ctypes, mmap, sys
    from pathlib import Path
    import numpy as np
    from compiling import Kernels, compile_once

    libc = ctypes.CDLL(None, use_errno=True)
    PAGE = mmap.PAGESIZE
    kept = []

    def guarded(array, at_end):
        size = -(-array.nbytes // PAGE) * PAGE
        memory = mmap.mmap(-1, size + 2 * PAGE)
        kept.append(memory)
        whole = np.frombuffer(memory, np.uint8)
        for start in (0, PAGE + size):
            address = ctypes.c_void_p(whole.ctypes.data + start)
            assert libc.mprotect(address, PAGE, 0) == 0, ctypes.get_errno()
        first = PAGE + (size - array.nbytes if at_end else 0)
        view = whole[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view

    cache, name, spec = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
    kernels = Kernels(compile_once(cache, {"name": name, **spec}))
    for at_end in (False, True):
        for q_len, kv_len in ((1, 1), (2, 37), (5, 300), (29, 31), (61, 130)):
            arrays = kernels.arrays(1, q_len, kv_len, 1)
            views = [guarded(a, at_end) for a in arrays[:3]]
            for kernel in ("flash_forward", "split_kv"):
                if kernel == "split_kv" and q_len > kernels.short_rows:
                    continue
                out, lse = kernels.run(kernel, *arrays)
                views_out = guarded(np.full_like(out, np.nan), at_end)
                views_lse = guarded(np.full_like(lse, np.nan), at_end)
                kernels.run_into(kernel, *views, None, views_out, views_lse)
                assert np.array_equal(views_out, out) and np.array_equal(views_lse, lse)
    print("nothing else was touched")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect as on Linux")
@pytest.mark.parametrize("name", SPECS)
def test_pages_beside_the_arrays_are_never_touched(name: str, kernel_cache: Path) -> None:
    kernels_once(kernel_cache, {"name": name, **SPECS[name]})
    answer = run_script(GUARDED_PAGES, kernel_cache, name, SPECS[name], cache=kernel_cache)
    assert answer == "nothing else was touched\n"
