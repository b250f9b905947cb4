"""What the emulator says about accesses: bounds, alignment, initialisation, order."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.assemble import kernel, run
from ptx.memory import GlobalMemory
from ptx.module import PtxError
from ptx.report import KernelFaultError, Kind

THREAD = """
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [out];
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d4, %d1, %d3;
    add.s64 %d5, %d2, %d3;
"""
POINTERS = ["u64 x", "u64 out"]
COPY = THREAD + "ld.global.f32 %f1, [%d4{load}]; st.global.f32 [%d5{store}], %f1; ret;"


def copy(load: str = "", store: str = "", size: int = 32) -> set[Kind]:
    memory = GlobalMemory()
    x = memory.place(np.arange(32, dtype=np.float32))
    out = memory.reserve((size,), np.float32)
    body = COPY.format(load=load, store=store)
    report, _ = run(kernel(body, POINTERS), x, out, memory=memory, outputs=[out])
    return report.kinds


def test_a_clean_copy() -> None:
    assert copy() == set()


def test_reads_and_writes_beyond_an_array() -> None:
    assert copy(load="+4") == {Kind.OUT_OF_BOUNDS}
    assert copy(load="+-4") == {Kind.OUT_OF_BOUNDS}
    assert copy(store="+4") == {Kind.OUT_OF_BOUNDS, Kind.UNWRITTEN}
    assert copy(load="+100000000") == {Kind.OUT_OF_BOUNDS}


def test_misaligned_accesses() -> None:
    assert copy(load="+2") == {Kind.MISALIGNED}


def test_an_output_that_is_not_filled() -> None:
    assert copy(size=33) == {Kind.UNWRITTEN}


def test_inputs_may_not_be_written() -> None:
    memory = GlobalMemory()
    x, out = (memory.place(np.zeros(32, np.float32)) for _ in range(2))
    report, _ = run(kernel(COPY.format(load="", store=""), POINTERS), x, out, memory=memory)
    assert report.kinds == {Kind.READ_ONLY}
    with pytest.raises(KernelFaultError, match=r"read-only.*\n.*st\.global\.f32"):
        report.check()


def test_reading_what_nobody_wrote() -> None:
    memory = GlobalMemory()
    x, out = (memory.reserve(32, np.float32) for _ in range(2))
    ptx = kernel(COPY.format(load="", store=""), POINTERS)
    report, _ = run(ptx, x, out, memory=memory)
    assert report.kinds == {Kind.UNINITIALISED}
    report, _ = run(ptx, out, x, memory=memory)  # a later launch may read what was written
    assert not report.faults


def test_the_host_may_fill_memory_later() -> None:
    memory = GlobalMemory()
    x, out = (memory.reserve(32, np.float32) for _ in range(2))
    values = np.arange(32, dtype=np.float32)
    memory.write(x.address, values.view(np.uint8))
    report, _ = run(kernel(COPY.format(load="", store=""), POINTERS), x, out, memory=memory)
    report.check()
    np.testing.assert_array_equal(memory.read(out), values)
    with pytest.raises(ValueError, match="not all allocated"):
        memory.write(x.address + 4, values.view(np.uint8))


def test_what_lies_between_the_elements_of_a_strided_array_is_out_of_bounds() -> None:
    memory = GlobalMemory()
    whole = np.arange(64, dtype=np.float32)
    out = memory.reserve(32, np.float32)
    dense = memory.place(whole[:32])
    strided = memory.place(whole[::2])
    ptx = kernel(COPY.format(load="", store=""), POINTERS)
    assert not run(ptx, dense, out, memory=memory)[0].faults
    assert run(ptx, strided, out, memory=memory)[0].kinds == {Kind.OUT_OF_BOUNDS}
    np.testing.assert_array_equal(memory.read(strided), whole[::2])


def test_arrays_with_falling_strides() -> None:
    memory = GlobalMemory()
    x = np.arange(32, dtype=np.float32)
    region = memory.place(x[::-1])
    np.testing.assert_array_equal(memory.read(region), x[::-1])
    body = (
        THREAD + "sub.s64 %d4, %d1, %d3; ld.global.f32 %f1, [%d4]; st.global.f32 [%d5], %f1; ret;"
    )
    out = memory.reserve(32, np.float32)
    report, _ = run(kernel(body, POINTERS), region, out, memory=memory, outputs=[out])
    report.check()
    np.testing.assert_array_equal(memory.read(out), x[::-1])


@pytest.mark.parametrize("align", [2, 4, 16, 64])
def test_arrays_lie_no_better_than_asked(align: int) -> None:
    memory = GlobalMemory()
    for _ in range(3):
        region = memory.place(np.zeros(5, np.uint16), align=align)
        assert region.address % (2 * align) == align


def test_vectors_are_one_access() -> None:
    memory = GlobalMemory()
    x = memory.place(np.arange(128, dtype=np.float32))
    out = memory.reserve(128, np.float32)
    body = """
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %d3, %r1, 16;
        ld.param.u64 %d1, [x];
        ld.param.u64 %d2, [out];
        add.s64 %d4, %d1, %d3;
        add.s64 %d5, %d2, %d3;
        ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%d4];
        st.global.v4.f32 [%d5], {%f4, %f3, %f2, %f1};
        ret;"""
    report, _ = run(kernel(body, POINTERS), x, out, memory=memory, outputs=[out])
    report.check()
    want = np.arange(128, dtype=np.float32).reshape(32, 4)[:, ::-1].ravel()
    np.testing.assert_array_equal(memory.read(out), want)
    aside = body.replace("[%d4]", "[%d4+8]")
    assert Kind.MISALIGNED in run(kernel(aside, POINTERS), x, out, memory=memory)[0].kinds


def test_narrow_loads_extend() -> None:
    memory = GlobalMemory()
    x = memory.place(np.array([-1, 3, -128], np.int8))
    out = memory.reserve((3, 2), np.int32)
    body = """
        mov.u32 %r1, %tid.x;
        cvt.u64.u32 %d3, %r1;
        ld.param.u64 %d1, [x];
        ld.param.u64 %d2, [out];
        add.s64 %d4, %d1, %d3;
        ld.global.s8 %h1, [%d4];
        ld.global.u8 %r3, [%d4];
        cvt.s32.s16 %r2, %h1;
        shl.b64 %d3, %d3, 3;
        add.s64 %d5, %d2, %d3;
        st.global.v2.b32 [%d5], {%r2, %r3};
        ret;"""
    report, _ = run(kernel(body, POINTERS), x, out, memory=memory, block=(3,), outputs=[out])
    report.check()
    assert memory.read(out).tolist() == [[-1, 255], [3, 3], [-128, 128]]


LOCAL = (
    THREAD
    + """
    cvta.local.u64 %d10, stack;
    mov.u64 %d11, stack;
    st.local.u32 [%d11+{at}], %r1;
    ld.global.u32 %r2, [%d4];
    st.u32 [%d10], %r2;
    ld.local.u32 %r3, [%d11+{at}];
    ld.local.u32 %r4, [stack{other}];
    add.u32 %r3, %r3, %r4;
    st.global.u32 [%d5], %r3;
    ret;"""
)


def test_local_memory_belongs_to_its_thread() -> None:
    def launch(at: int, other: str) -> tuple[set[Kind], list[int]]:
        memory = GlobalMemory()
        x, out = memory.place(np.full(32, 7, np.uint32)), memory.reserve(32, np.uint32)
        body = ".local .align 8 .b8 stack[16];" + LOCAL.format(at=at, other=other)
        report, _ = run(kernel(body, POINTERS), x, out, memory=memory)
        return report.kinds, memory.read(out).tolist()

    assert launch(4, "") == (set(), [7 + i for i in range(32)])
    assert launch(4, "+8")[0] == {Kind.UNINITIALISED}
    assert launch(16, "")[0] == {Kind.OUT_OF_BOUNDS}


def test_constants_of_the_module() -> None:
    memory = GlobalMemory()
    x, out = memory.place(np.zeros(4, np.uint32)), memory.reserve(4, np.uint32)
    table = ".const .align 4 .u32 table[4] = {3, 1, 4, 1};"
    body = (
        THREAD
        + """
        mov.u64 %d6, table;
        add.s64 %d6, %d6, %d3;
        ld.const.u32 %r2, [%d6];
        st.global.u32 [%d5], %r2;
        ret;"""
    )
    ptx = kernel(body, POINTERS, table)
    report, _ = run(ptx, x, out, memory=memory, block=(4,), outputs=[out])
    report.check()
    assert memory.read(out).tolist() == [3, 1, 4, 1]


@pytest.mark.parametrize(
    ("operation", "start", "want"),
    [
        ("add.u32", 5, 5 + sum(range(64))),
        ("max.u32", 5, 63),
        ("min.u32", 5, 0),
        ("or.b32", 0, 63),
        ("inc.u32", 0, 0),
    ],
)
def test_atomics_are_one_after_the_other(operation: str, start: int, want: int) -> None:
    memory = GlobalMemory()
    counter = memory.place(np.array([start], np.uint32), writable=True)
    out = memory.reserve(64, np.uint32)
    value = "63" if operation.startswith("inc") else "%r4"
    body = (
        THREAD.replace("[x]", "[x]")
        + f"""
        mov.u32 %r2, %ctaid.x;
        mad.lo.u32 %r4, %r2, 32, %r1;
        mul.wide.u32 %d3, %r4, 4;
        add.s64 %d5, %d2, %d3;
        mov.u32 %r5, {value};
        atom.global.{operation} %r3, [%d1], %r5;
        st.global.u32 [%d5], %r3;
        ret;"""
    )
    report, _ = run(kernel(body, POINTERS), counter, out, memory=memory, grid=(2,), outputs=[out])
    report.check()
    assert memory.read(counter).tolist() == [want]
    if operation == "inc.u32":
        assert sorted(memory.read(out).tolist()) == list(range(64))


def test_float_atomics_and_exchange() -> None:
    memory = GlobalMemory()
    total = memory.place(np.zeros(2, np.float32), writable=True)
    out = memory.reserve(32, np.uint32)
    body = (
        THREAD
        + """
        cvt.rn.f32.u32 %f1, %r1;
        red.global.add.f32 [%d1], %f1;
        atom.global.cas.b32 %r3, [%d1+4], 0, %r1;
        st.global.u32 [%d5], %r3;
        ret;"""
    )
    report, _ = run(kernel(body, POINTERS), total, out, memory=memory, outputs=[out])
    report.check()
    first, second = memory.read(total)
    assert first == sum(range(32))
    assert second.view(np.uint32) == 1


def test_arguments_must_fit_the_parameters() -> None:
    memory = GlobalMemory()
    x = memory.place(np.zeros(1, np.float32))
    ptx = kernel("ret;", ["u64 x", "u32 n", "f32 s"])
    run(ptx, x, 3, 1.5, memory=memory)
    for wrong in ((x, 3), (x, 1.5, 1.5), (x, x, 1.5, 2)):
        with pytest.raises(PtxError):
            run(ptx, *wrong, memory=memory)
    with pytest.raises(PtxError, match="maxntid"):
        run(ptx.replace("\n{", "\n.maxntid 16, 1, 1\n{"), x, 3, 1.5, memory=memory)


@pytest.mark.parametrize(
    "line",
    [
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [x, {%f1, %f2}];",
        "add.cc.u32 %r1, %r1, %r1;",
        "frobnicate.u32 %r1, %r2;",
        "mov.u32 %r1, %pm0;",
        "div.rz.f32 %f1, %f2, %f3;",
    ],
)
def test_what_is_not_known_is_an_error(line: str) -> None:
    with pytest.raises(PtxError, match="line"):
        run(kernel(line + "ret;"))


def test_undeclared_names_are_errors() -> None:
    with pytest.raises(PtxError, match="%q9 is not declared"):
        run(kernel("@%q9 bra L; L: ret;"))
    with pytest.raises(PtxError):
        run(kernel("bra NOWHERE; ret;"))
