"""Races, barriers and copies in flight: each kernel is right, and each mutant of it is caught."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.assemble import kernel, run
from ptx.memory import GlobalMemory, Region
from ptx.report import Kind, Report

SHARED = ".shared .align 16 .b8 tile[1024];"
THREAD = """
    mov.u32 %r1, %tid.x;
    mov.u32 %r20, %ntid.x;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [out];
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d4, %d1, %d3;
    add.s64 %d5, %d2, %d3;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    sub.u32 %r6, %r20, 1;
    sub.u32 %r6, %r6, %r1;
    shl.b32 %r6, %r6, 2;
    add.u32 %r6, %r2, %r6;
"""  # %r4: this thread's word of the tile, %r6: that of its mirror image


def launch(body: str, threads: int = 64, grid: int = 1) -> tuple[Report, list[int], Region]:
    """Run it on x = 0, 1, 2, …; what is in `out` after it."""
    memory = GlobalMemory()
    x = memory.place(np.arange(threads, dtype=np.uint32))
    out = memory.reserve(threads, np.uint32)
    ptx = kernel(THREAD + body, ["u64 x", "u64 out"], SHARED)
    report, _ = run(ptx, x, out, memory=memory, block=(threads,), grid=(grid,), outputs=[out])
    return report, memory.read(out).tolist(), out


REVERSE = """
    ld.global.u32 %r7, [%d4];
    st.shared.u32 [%r4], %r7;
    bar.sync 0;
    ld.shared.u32 %r8, [%r6];
    st.global.u32 [%d5], %r8;
    ret;"""
BACKWARDS = list(range(63, -1, -1))


def test_a_barrier_orders_threads() -> None:
    report, values, _ = launch(REVERSE)
    report.check()
    assert values == BACKWARDS
    assert not report.conflicts()


def test_without_the_barrier_it_is_a_race() -> None:
    report, values, _ = launch(REVERSE.replace("bar.sync 0;", ""))
    assert report.kinds == {Kind.RACE}
    assert values == BACKWARDS, "in this order of threads the result is right all the same"


def test_a_warp_needs_its_own_barrier_too() -> None:
    warp = REVERSE.replace("bar.sync 0;", "bar.warp.sync -1;")
    report, values, _ = launch(warp, threads=32)
    report.check()
    assert values == BACKWARDS[32:]
    assert launch(warp)[0].kinds == {Kind.RACE}, "another warp is not held by it"
    assert launch(REVERSE.replace("bar.sync 0;", ""), threads=32)[0].kinds == {Kind.RACE}


def test_reads_before_writes_are_races_as_well() -> None:
    twice = REVERSE.replace("st.global", "{barrier} st.shared.u32 [%r4], %r8; st.global")
    assert not launch(twice.replace("{barrier}", "bar.sync 0;"))[0].faults
    report, _, _ = launch(twice.replace("{barrier}", ""))
    assert report.kinds == {Kind.RACE}
    assert "read without a barrier" in str(next(iter(report.faults.values())))


def test_an_earlier_reader_of_the_warp_is_not_forgotten() -> None:
    body = """
        st.shared.u32 [%r4], %r1;
        bar.sync 0;
        ld.shared.u32 %r8, [tile];
        setp.eq.u32 %p1, %r1, 1;
        @%p1 ld.shared.u32 %r9, [tile];
        {barrier}
        @%p1 st.shared.u32 [tile], %r1;
        st.global.u32 [%d5], %r8;
        ret;"""
    assert not launch(body.replace("{barrier}", "bar.sync 0;"))[0].faults
    assert not launch(body.replace("{barrier}", "bar.warp.sync -1;"), threads=32)[0].faults
    assert launch(body.replace("{barrier}", ""), threads=32)[0].kinds == {Kind.RACE}


def test_several_threads_that_write_one_place() -> None:
    body = "st.shared.u32 [tile], {value}; st.global.u32 [%d5], %r1; ret;"
    assert launch(body.replace("{value}", "%r1"))[0].kinds == {Kind.RACE}
    assert launch(body.replace("{value}", "7"), threads=32)[0].kinds == set()


def test_bytes_are_told_apart() -> None:
    body = """
        add.u32 %r9, %r2, %r1;
        cvt.u16.u32 %h1, %r1;
        st.shared.u8 [%r9], %h1;
        {barrier}
        xor.b32 %r10, %r1, 32;
        add.u32 %r10, %r2, %r10;
        ld.shared.u8 %r7, [%r10];
        st.global.u32 [%d5], %r7;
        ret;"""
    report, values, _ = launch(body.replace("{barrier}", "bar.sync 0;"))
    report.check()
    assert values == [i ^ 32 for i in range(64)]
    assert launch(body.replace("{barrier}", ""))[0].kinds == {Kind.RACE}


def test_nothing_in_shared_memory_is_initialised() -> None:
    report, _, _ = launch("ld.shared.u32 %r8, [%r4]; st.global.u32 [%d5], %r8; ret;")
    assert report.kinds == {Kind.UNINITIALISED}


def test_shared_memory_ends() -> None:
    report, _, _ = launch("st.shared.u32 [%r4+1000], %r1; st.global.u32 [%d5], %r1; ret;")
    assert report.kinds == {Kind.OUT_OF_BOUNDS}
    assert "thread (6, 0, 0)" in str(next(iter(report.faults.values())))


NAMED = """
    setp.lt.u32 %p1, %r1, 32;
    @%p1 bra FIRST;
    st.shared.u32 [%r4], %r1;
    bar.arrive 1, 64;
    st.global.u32 [%d5], %r1;
    ret;
FIRST:
    bar.sync 1, 64;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%d5], %r7;
    ret;"""


def test_a_barrier_between_a_producer_and_a_consumer() -> None:
    report, values, _ = launch(NAMED)
    report.check()
    assert values == [*range(63, 31, -1), *range(32, 64)]
    other = NAMED.replace("bar.arrive 1", "bar.arrive 2")
    assert launch(other)[0].kinds == {Kind.DIVERGENT, Kind.UNWRITTEN}
    early = NAMED.replace("st.shared.u32 [%r4], %r1;", "").replace(
        "bar.arrive 1, 64;", "bar.arrive 1, 64; st.shared.u32 [%r4], %r1;"
    )
    assert Kind.RACE in launch(early)[0].kinds


def test_threads_that_have_ended_count_as_arrived() -> None:
    body = """
        st.global.u32 [%d5], %r1;
        setp.ge.u32 %p1, %r1, 32;
        @%p1 ret;
        bar.sync 0;
        ret;"""
    launch(body)[0].check()


def test_half_a_warp_at_a_barrier() -> None:
    body = """
        st.global.u32 [%d5], %r1;
        setp.ge.u32 %p1, %r1, 48;
        @%p1 bra ON;
        bar.sync 0;
    ON:
        bar.sync 1;
        ret;"""
    assert launch(body)[0].kinds == {Kind.DIVERGENT}


COPIED = """
    cp.async.ca.shared.global [%r4], [%d4], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    ld.shared.u32 %r8, [%r6];
    st.global.u32 [%d5], %r8;
    ret;"""


def test_copies_are_waited_for_and_then_shared() -> None:
    report, values, _ = launch(COPIED)
    report.check()
    assert values == BACKWARDS


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("bar.sync 0;", "", {Kind.RACE}),
        ("cp.async.wait_group 0;", "", {Kind.PENDING_COPY, Kind.UNINITIALISED}),
        ("wait_group 0", "wait_group 1", {Kind.PENDING_COPY, Kind.UNINITIALISED}),
        ("cp.async.commit_group;", "", {Kind.PENDING_COPY, Kind.UNINITIALISED}),
        ("[%r6]", "[%r4+4]", {Kind.UNINITIALISED}),
        ("[%d4], 4", "[%d4+4], 4", {Kind.OUT_OF_BOUNDS}),
    ],
)
def test_copies_that_are_not(old: str, new: str, kinds: set[Kind]) -> None:
    assert launch(COPIED.replace(old, new))[0].kinds == kinds


def test_waiting_after_the_barrier_is_too_late_for_others() -> None:
    swapped = COPIED.replace("cp.async.wait_group 0;", "").replace(
        "bar.sync 0;", "bar.sync 0; cp.async.wait_all;"
    )
    assert launch(swapped)[0].kinds == {Kind.RACE}


def test_a_copy_may_not_overwrite_what_others_still_read() -> None:
    again = COPIED.replace(
        "st.global", "{barrier} cp.async.ca.shared.global [%r4], [%d4], 4; st.global"
    ).replace("ret;", "cp.async.wait_all; ret;")
    assert not launch(again.replace("{barrier}", "bar.sync 0;"))[0].faults
    assert launch(again.replace("{barrier}", ""))[0].kinds == {Kind.RACE}


def test_groups_are_counted_from_the_newest() -> None:
    body = """
        cp.async.ca.shared.global [%r4], [%d4], 4;
        cp.async.commit_group;
        cp.async.ca.shared.global [%r4+256], [%d4], 4;
        cp.async.commit_group;
        cp.async.wait_group 1;
        ld.shared.u32 %r8, [%r4{which}];
        st.global.u32 [%d5], %r8;
        ret;"""
    report, values, _ = launch(body.replace("{which}", ""))
    report.check()
    assert values == list(range(64))
    assert report.dangling_copies == 64
    assert Kind.PENDING_COPY in launch(body.replace("{which}", "+256"))[0].kinds


def test_short_copies_are_filled_with_zeros_and_read_no_further() -> None:
    body = """
        setp.lt.u32 %p1, %r1, 60;
        selp.u32 %r9, 4, 0, %p1;
        selp.u64 %d6, %d4, 4096, %p1;
        cp.async.ca.shared.global [%r4], [%d6], 4, %r9;
        cp.async.wait_all;
        ld.shared.u32 %r8, [%r4];
        st.global.u32 [%d5], %r8;
        ret;"""
    report, values, _ = launch(body)
    report.check()
    assert values == [*range(60), 0, 0, 0, 0]


LAST_BLOCK = """
    mov.u32 %r10, %ctaid.x;
    st.global.u32 [%d5], %r1;
    {barrier}
    setp.ne.u32 %p1, %r1, 0;
    mov.u32 %r11, 0;
    st.shared.u32 [%r4], 0;
    bar.sync 0;
    @%p1 bra JOIN;
    {release}
    ld.param.u64 %d8, [count];
    atom.global.add.u32 %r11, [%d8], 1;
    {acquire}
    st.shared.u32 [tile], %r11;
JOIN:
    bar.sync 0;
    ld.shared.u32 %r11, [tile];
    setp.ne.u32 %p2, %r11, 2;
    @%p2 ret;
    ld.param.u64 %d9, [part];
    add.s64 %d9, %d9, %d3;
    ld.global.u32 %r12, [%d9];
    ld.global.u32 %r13, [%d9+128];
    ld.global.u32 %r14, [%d9+256];
    add.u32 %r12, %r12, %r13;
    add.u32 %r12, %r12, %r14;
    ld.param.u64 %d10, [total];
    add.s64 %d10, %d10, %d3;
    st.global.u32 [%d10], %r12;
    ret;"""


def last_block(barrier: str, release: str, acquire: str) -> tuple[Report, list[int]]:
    """Three blocks leave a part each; the one that counts to three adds them up."""
    memory = GlobalMemory()
    part = memory.reserve(96, np.uint32)
    total = memory.reserve(32, np.uint32)
    count = memory.place(np.zeros(1, np.uint32), writable=True)
    start = """
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, tile;
        shl.b32 %r3, %r1, 2;
        add.u32 %r4, %r2, %r3;
        mul.wide.u32 %d3, %r1, 4;
        ld.param.u64 %d2, [part];
        mov.u32 %r5, %ctaid.x;
        mul.wide.u32 %d6, %r5, 128;
        add.s64 %d5, %d2, %d6;
        add.s64 %d5, %d5, %d3;
    """
    body = start + LAST_BLOCK.format(barrier=barrier, release=release, acquire=acquire)
    ptx = kernel(body, ["u64 part", "u64 total", "u64 count"], SHARED)
    report, _ = run(ptx, part, total, count, memory=memory, grid=(3,), outputs=[part, total])
    return report, memory.read(total).tolist()


def test_the_last_block_sees_what_the_others_released() -> None:
    report, values = last_block("bar.sync 0;", "membar.gl;", "membar.gl;")
    report.check()
    assert values == [3 * i for i in range(32)]


@pytest.mark.parametrize(("release", "acquire"), [("", "membar.gl;"), ("membar.gl;", ""), ("", "")])
def test_the_last_block_without_fences(release: str, acquire: str) -> None:
    assert last_block("bar.sync 0;", release, acquire)[0].kinds == {Kind.RACE}


PHASED = """
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [tile+512], 32;
READY:
    bar.sync 0;
    setp.ge.u32 %p2, %r1, 32;
    @%p2 bra CONSUME;
    st.shared.u32 [%r4], %r1;
    mbarrier.arrive.shared::cta.b64 %d9, [tile+512];
    st.global.u32 [%d5], %r1;
    ret;
CONSUME:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [tile+512], 0;
    @!%p3 bra CONSUME;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%d5], %r7;
    ret;"""


def test_a_barrier_in_memory() -> None:
    report, values, _ = launch(PHASED)
    report.check()
    assert values == [*range(32), *range(31, -1, -1)]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("b64 [tile+512], 32;", "b64 [tile+512], 33;", Kind.HANG),
        ("READY:\n    bar.sync 0;", "READY:", Kind.RACE),
        ("[tile+512], 0;", "[tile+512], 1;", Kind.HANG),
        ("mbarrier.init", "mbarrier.inval", Kind.BARRIER_STATE),
    ],
)
def test_a_barrier_in_memory_used_wrongly(old: str, new: str, kind: Kind) -> None:
    mutant = PHASED.replace(old, new)
    if "inval" in mutant:
        mutant = mutant.replace("[tile+512], 32;", "[tile+512];")
    assert mutant != PHASED
    assert kind in launch(mutant)[0].kinds


def test_copies_that_arrive_at_a_barrier_in_memory() -> None:
    body = PHASED.replace(
        "st.shared.u32 [%r4], %r1;\n    mbarrier.arrive.shared::cta.b64 %d9, [tile+512];",
        "cp.async.ca.shared.global [%r4], [%d4], 4;\n"
        "    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile+512];",
    )
    report, values, _ = launch(body)
    report.check()
    assert values == [*range(32), *range(31, -1, -1)]
    early = body.replace("mbarrier.try_wait.parity", "mbarrier.test_wait.parity").replace(
        "@!%p3 bra CONSUME;", ""
    )
    assert Kind.RACE in launch(early.replace("[tile+512], 0;", "[tile+512], 1;"))[0].kinds


@pytest.mark.parametrize(
    ("access", "stride", "extra"),
    [
        ("ld.shared.b32 %r9", 4, 0),
        ("ld.shared.b32 %r9", 8, 1),
        ("ld.shared.b32 %r9", 128, 7),  # 8 words of one bank for 32 lanes that repeat 8 rows
        ("ld.shared.b32 %r9", 0, 0),
        ("ld.shared.u16 %h1", 2, 0),
        ("ld.shared.v2.b32 {%r9, %r10}", 8, 0),
        ("ld.shared.v4.b32 {%r9, %r10, %r11, %r12}", 16, 0),
        ("ld.shared.v4.b32 {%r9, %r10, %r11, %r12}", 128, 28),
    ],
)
def test_bank_conflicts(access: str, stride: int, extra: int) -> None:
    fill = "".join(f"st.shared.u32 [%r4+{i}], 0;" for i in range(0, 1024, 128))
    body = (
        fill
        + f"""
        bar.warp.sync -1;
        rem.u32 %r7, %r1, {1024 // stride if stride else 1};
        mad.lo.u32 %r7, %r7, {stride}, %r2;
        {access}, [%r7];
        st.global.u32 [%d5], %r1;
        ret;"""
    )
    report, _, _ = launch(body, threads=32)
    report.check()
    assert report.conflicts() == extra
    assert len(report.conflict_lines()) == (extra > 0)
    assert not report.conflicts(in_loops_only=True)
