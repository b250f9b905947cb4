"""Tensor-core instructions against matrix products, with the ISA's layouts written out anew."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emulator.assemble import Array, kernel, run
from ptx.memory import GlobalMemory
from ptx.module import PtxError
from ptx.report import Kind, Report

LANES = np.arange(32)


def per_lane(count: int, value: Callable[[int, int], float], dtype: np.dtype) -> Array:
    """(32, count): value(lane, element)."""
    return np.array([[value(lane, i) for i in range(count)] for lane in range(32)], dtype)


def load_registers(name: str, first: int, count: int) -> str:
    """Registers %r{first}… of a lane, from rows of `count` words."""
    lines = [f"ld.param.u64 %d1, [{name}];", f"mul.wide.u32 %d2, %r1, {4 * count};"]
    lines += ["add.s64 %d1, %d1, %d2;"]
    lines += [f"ld.global.b32 %r{first + i}, [%d1+{4 * i}];" for i in range(count)]
    return "\n".join(lines)


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def floats(first: int, count: int) -> str:
    return registers(first, count).replace("%r", "%f")


def mma(form: str, a: Array, b: Array, c: Array, result: str) -> Array:
    """One mma on fragments of 32-bit words (32, registers); the words of d."""
    memory = GlobalMemory()
    regions = [memory.place(x.view(np.uint32)) for x in (a, b, c)]
    counts = [x.view(np.uint32).shape[1] for x in (a, b, c)]
    out = memory.reserve((32, counts[2]), np.uint32)
    body = "mov.u32 %r1, %tid.x;\n"
    for name, first, count in zip("abc", (4, 10, 14), counts, strict=True):
        body += load_registers(name, first, count) + "\n"
    d, before = registers(20, counts[2]), registers(14, counts[2])
    if result == "f32":
        for i in range(4):
            body += f"mov.b32 %f{14 + i}, %r{14 + i};\n"
        d, before = floats(20, 4), floats(14, 4)
    body += f"{form} {d}, {registers(4, counts[0])}, {registers(10, counts[1])}, {before};\n"
    body += f"ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r1, {4 * counts[2]};\n"
    body += "add.s64 %d1, %d1, %d2;\n"
    kind = "f32" if result == "f32" else "b32"
    for i in range(counts[2]):
        body += f"st.global.{kind} [%d1+{4 * i}], {'%f' if kind == 'f32' else '%r'}{20 + i};\n"
    ptx = kernel(body + "ret;", ["u64 a", "u64 b", "u64 c", "u64 out"])
    report, _ = run(ptx, *regions, out, memory=memory, outputs=[out])
    report.check()
    return memory.read(out)


def words(values: Array, brain: bool) -> Array:
    if brain:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.view(np.uint16)


@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_halves(k: int, name: str) -> None:
    rng = np.random.default_rng(k)
    brain = name == "bf16"
    x, y = (np.round(rng.standard_normal(s) * 8) / 8 for s in ((16, k), (k, 8)))
    start = rng.standard_normal((16, 8)).astype(np.float32)

    # "the row of a_i is groupID for i even pairs, groupID + 8 for odd pairs; its column is …"
    def a_at(lane: int, i: int) -> float:
        row = lane // 4 + (8 if i in (2, 3, 6, 7) else 0)
        return float(x[row, lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)])

    def b_at(lane: int, i: int) -> float:
        return float(y[lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4])

    def c_at(lane: int, i: int) -> float:
        return float(start[lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)])

    a = words(per_lane(k // 2, a_at, np.dtype(np.float16)), brain)
    b = words(per_lane(k // 4, b_at, np.dtype(np.float16)), brain)
    c = per_lane(4, c_at, np.dtype(np.float32))
    form = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{name}.{name}.f32"
    got = mma(form, a, b, c, "f32").view(np.float32)
    total = x @ y + start
    want = per_lane(4, lambda lane, i: float(
        total[lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)]
    ), np.dtype(np.float64))  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)
    if name == "f16":
        start16 = start.astype(np.float16)
        c16 = per_lane(4, lambda lane, i: float(
            start16[lane // 4 + 8 * (i >= 2), lane % 4 * 2 + (i & 1)]
        ), np.dtype(np.float16))  # fmt: skip
        form = f"mma.sync.aligned.m16n8k{k}.row.col.f16.f16.f16.f16"
        half = mma(form, a, b, c16, "f16").view(np.float16)
        np.testing.assert_allclose(half, want, rtol=2e-3, atol=2e-3)


def test_tensor_floats() -> None:
    rng = np.random.default_rng(0)
    x, y = (np.round(rng.standard_normal(s) * 64) / 64 for s in ((16, 8), (8, 8)))
    a = per_lane(
        4, lambda lane, i: float(x[lane // 4 + 8 * (i & 1), lane % 4 + 4 * (i >> 1)]),
        np.dtype(np.float32),
    )  # fmt: skip
    b = per_lane(2, lambda lane, i: float(y[lane % 4 + 4 * i, lane // 4]), np.dtype(np.float32))
    c = np.zeros((32, 4), np.float32)
    got = mma("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", a, b, c, "f32")
    total = x @ y
    want = per_lane(
        4, lambda lane, i: float(total[lane // 4 + 8 * (i >> 1), lane % 4 * 2 + (i & 1)]),
        np.dtype(np.float64),
    )  # fmt: skip
    np.testing.assert_allclose(got.view(np.float32), want, rtol=1e-6, atol=1e-6)


def test_bytes() -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-128, 128, s) for s in ((16, 32), (32, 8)))

    def a_at(lane: int, i: int) -> int:
        row = lane // 4 + (8 if 4 <= i < 8 or i >= 12 else 0)
        return int(x[row, lane % 4 * 4 + (i & 3) + (16 if i >= 8 else 0)])

    a = per_lane(16, a_at, np.dtype(np.int8))
    b = per_lane(
        8, lambda lane, i: int(y[lane % 4 * 4 + (i & 3) + 16 * (i >> 2), lane // 4]),
        np.dtype(np.int8),
    )  # fmt: skip
    c = np.full((32, 4), 7, np.int32)
    got = mma("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", a, b, c, "s32").view(np.int32)
    total = x @ y + 7
    want = per_lane(
        4, lambda lane, i: int(total[lane // 4 + 8 * (i >> 1), lane % 4 * 2 + (i & 1)]),
        np.dtype(np.int64),
    )  # fmt: skip
    np.testing.assert_array_equal(got, want)


def test_other_shapes_are_errors() -> None:
    body = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2}; ret;"
    with pytest.raises(PtxError, match="m8n8k4"):
        run(kernel(body))


SHARED = ".shared .align 128 .b8 tile[2048];"
FILL = """
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [out];
    mul.wide.u32 %d3, %r1, 16;
    add.s64 %d4, %d1, %d3;
    add.s64 %d5, %d2, %d3;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 4;
    add.u32 %r4, %r2, %r3;
"""


def through_shared(lines: str) -> tuple[Report, Array, Array]:
    """x (32 rows of 8 halves) and what `lines` leave in `out`, of the same size."""
    memory = GlobalMemory()
    x = np.arange(256, dtype=np.uint16).reshape(32, 8)
    source, out = memory.place(x), memory.reserve((32, 8), np.uint16)
    ptx = kernel(FILL + lines, ["u64 x", "u64 out"], SHARED)
    report, _ = run(ptx, source, out, memory=memory, outputs=[out])
    return report, x, memory.read(out)


STORED = """
    ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%d4];
    st.shared.v4.b32 [%r4], {%r10, %r11, %r12, %r13};
    bar.warp.sync -1;
"""
LEFT = "st.global.v4.b32 [%d5], {%r20, %r21, %r22, %r23}; ret;"


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_are_loaded(trans: str) -> None:
    load = f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r4];"
    report, x, got = through_shared(STORED + load + LEFT)
    report.check()
    assert report.conflicts() == 0
    for lane in range(32):
        for m in range(4):
            row, column = lane // 4, lane % 4 * 2
            matrix = x[8 * m : 8 * m + 8]
            want = matrix.T[row, column : column + 2] if trans else matrix[row, column : column + 2]
            assert got[lane, 2 * m : 2 * m + 2].tolist() == want.tolist()


def test_rows_in_one_bank_conflict() -> None:
    wide = STORED.replace("[%r4], {", "[%r5], {").replace(
        "ld.global", "shl.b32 %r5, %r1, 6; add.u32 %r5, %r2, %r5; ld.global"
    )
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r5];"
    report, _, _ = through_shared(wide + load + LEFT)
    report.check()
    at = next(i for i, x in enumerate(report.kernel.instructions) if x.opcode == "ldmatrix")
    assert (report.traffic[at].phases, report.traffic[at].extra) == (4, 12)


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_are_stored_as_they_are_loaded(trans: str) -> None:
    through = f"""
        ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r4];
        add.u32 %r5, %r4, 1024;
        stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r5], {{%r20, %r21, %r22, %r23}};
        bar.warp.sync -1;
        ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r5];
    """
    report, x, got = through_shared(STORED + through + LEFT)
    report.check()
    np.testing.assert_array_equal(got, x)


def test_loading_matrices_before_the_warp_has_met_is_a_race() -> None:
    load = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r20, %r21}, [%r6];"
    other = "xor.b32 %r6, %r4, 16;" + load + LEFT.replace("%r22, %r23", "%r20, %r21")
    assert not through_shared(STORED + other)[0].faults
    early = STORED.replace("bar.warp.sync -1;", "")
    assert through_shared(early + other)[0].kinds == {Kind.RACE}


WIDTHS = {1: 128, 2: 64, 3: 32}  # bytes of a row, by the descriptor's swizzle mode


def swizzled(matrix: Array, width: int, stride: int, leading: int, size: int) -> Array:
    """Rows of 16-bit elements along shared memory: atoms of 8 rows of `width` bytes, swizzled.

    Columns beyond an atom's width go `leading` bytes on, rows beyond eight `stride`.
    """
    memory = np.zeros(size, np.uint8)
    per = width // 2
    for row, line in enumerate(matrix.view(np.uint16)):
        for column, value in enumerate(line):
            at = row % 8 * width + row // 8 * stride + column % per * 2 + column // per * leading
            chunk = at >> 4 & (width // 16 - 1)
            chunk ^= at >> 7 & (width // 16 - 1)
            at = at & ~(width - 16) | chunk << 4
            memory[at], memory[at + 1] = value & 0xFF, value >> 8
    return memory


PRODUCT = """
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [b];
    ld.param.u64 %d3, [out];
    mov.u32 %r2, tiles;
    mov.u32 %r3, 0;
FILL:
    shl.b32 %r4, %r3, 11;
    shl.b32 %r5, %r1, 4;
    add.u32 %r4, %r4, %r5;
    cvt.u64.u32 %d4, %r4;
    add.s64 %d5, %d1, %d4;
    add.u32 %r6, %r2, %r4;
    ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%d5];
    st.shared.v4.b32 [%r6], {%r10, %r11, %r12, %r13};
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 8;
    @%p1 bra FILL;
    fence.proxy.async;
    bar.sync 0;
    ld.param.u64 %d10, [da];
    ld.param.u64 %d11, [db];
    mov.f32 %f0, 0f00000000;
    wgmma.fence.sync.aligned;
    setp.ne.b32 %p2, %r2, %r2;
    wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {D}, {A}, %d11, %p2, 1, 1, {T};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %d6, %r1, 32;
    add.s64 %d6, %d3, %d6;
    st.global.v4.f32 [%d6], {%f1, %f2, %f3, %f4};
    st.global.v4.f32 [%d6+16], {%f5, %f6, %f7, %f8};
    ret;"""


def descriptor(start: int, leading: int, stride: int, mode: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62


def product(
    mode: int, a_major: str, b_major: str, change: tuple[str, str] = ("", "")
) -> tuple[Report, Array, Array]:
    """One m64n16k16 product from shared memory; what came, and what should have."""
    rng = np.random.default_rng(mode)
    a, b = (np.round(rng.standard_normal((n, 16)) * 8).astype(np.float16) / 8 for n in (64, 16))
    width = WIDTHS[mode]
    memory, tiles, fields = GlobalMemory(), np.zeros(16384, np.uint8), []
    for matrix, major, base in ((a, a_major, 0), (b, b_major, 8192)):
        if major == "k":  # rows of k; next eight rows one atom on
            stride, leading = 8 * width, 0
            image = swizzled(pad(matrix, width), width, stride, leading, 8192)
        else:  # rows of m or n; k beyond eight is `stride` on, wider rows `leading`
            stride, leading = 8 * width, 16 * width
            image = swizzled(
                pad(np.ascontiguousarray(matrix.T), width), width, stride, leading, 8192
            )
        tiles[base : base + 8192] = image
        fields.append(descriptor(1024 + base, leading, stride, mode))
    x, y = memory.place(tiles), memory.place(np.zeros(1, np.uint8))
    out = memory.reserve((128, 8), np.float32)
    d = ", ".join(f"%f{i}" for i in range(1, 9))
    body = PRODUCT.replace("{D}", "{" + d + "}").replace("{A}", "%d10")
    body = body.replace("{T}", f"{int(a_major != 'k')}, {int(b_major != 'k')}").replace(*change)
    ptx = kernel(
        body, ["u64 a", "u64 b", "u64 out", "u64 da", "u64 db"],
        ".shared .align 1024 .b8 tiles[16384];",
    )  # fmt: skip
    report, _ = run(ptx, x, y, out, *fields, memory=memory, block=(128,), outputs=[out])
    total = a.astype(np.float64) @ b.astype(np.float64).T
    want = np.empty((128, 8))
    for thread in range(128):
        for i in range(8):
            row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i >> 1 & 1)
            want[thread, i] = total[row, 8 * (i >> 2) + thread % 4 * 2 + (i & 1)]
    return report, memory.read(out), want


def pad(matrix: Array, width: int) -> Array:
    """At least one atom wide, so that an atom's unused columns exist."""
    missing = -matrix.shape[1] % (width // 2)
    return np.pad(matrix, ((0, 0), (0, missing)))


@pytest.mark.parametrize("mode", WIDTHS)
@pytest.mark.parametrize(("a_major", "b_major"), [("k", "k"), ("k", "mn"), ("mn", "k")])
def test_warpgroup_products_from_shared_memory(mode: int, a_major: str, b_major: str) -> None:
    report, got, want = product(mode, a_major, b_major)
    report.check()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)


WAIT = "wgmma.wait_group.sync.aligned 0;"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("fence.proxy.async;", "", Kind.ASYNC_PROXY),
        ("bar.sync 0;", "", Kind.RACE),
        (WAIT, "", Kind.TENSOR_IN_FLIGHT),
        (WAIT, "wgmma.wait_group.sync.aligned 1;", Kind.TENSOR_IN_FLIGHT),
        ("wgmma.commit_group.sync.aligned;", "", Kind.TENSOR_IN_FLIGHT),
        (WAIT, f"bar.sync 0; st.shared.b32 [%r6+-14336], %r1; {WAIT}", Kind.RACE),
        ("[da];", "[da]; add.s64 %d10, %d10, 4096;", Kind.OUT_OF_BOUNDS),
    ],
)
def test_warpgroup_products_used_wrongly(old: str, new: str, kind: Kind) -> None:
    assert kind in product(1, "k", "k", (old, new))[0].kinds


def test_operands_may_be_overwritten_after_the_wait() -> None:
    later = (WAIT, f"{WAIT} bar.sync 0; st.shared.b32 [%r6+-14336], %r1;")
    product(1, "k", "k", later)[0].check()
    assert product(1, "k", "k", (WAIT, later[1].replace("bar.sync 0;", "")))[0].kinds == {Kind.RACE}


def test_registers_changed_after_the_fence_are_counted() -> None:
    change = ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.f32 %f1, %f0;")
    assert product(1, "k", "k")[0].unfenced_registers == 0
    assert product(1, "k", "k", change)[0].unfenced_registers == 1
