"""Exchange within a warp, and threads that part and meet again."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.assemble import Array, kernel, run
from ptx.memory import GlobalMemory
from ptx.report import Kind

ADDRESS = """
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    ld.param.u64 %d2, [x];
    ld.param.u64 %d3, [out];
    add.s64 %d2, %d2, %d1;
    add.s64 %d3, %d3, %d1;
    ld.global.u32 %r2, [%d2];
"""


def exchange(lines: str, x: Array, threads: int = 64) -> Array:
    """`lines` make %r3 of %r2 in every thread."""
    memory = GlobalMemory()
    source, out = memory.place(x), memory.reserve(x.shape, np.uint32)
    body = ADDRESS + lines + "\nst.global.u32 [%d3], %r3; ret;"
    report, _ = run(
        kernel(body, ["u64 x", "u64 out"]), source, out, block=(threads,), outputs=[out],
        memory=memory,
    )  # fmt: skip
    report.check()
    return memory.read(out)


X = np.random.default_rng(0).integers(0, 1 << 32, 64).astype(np.uint32)


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane that is read, and the predicate: the pseudo-code of the ISA."""
    clamp, mask = c & 31, c >> 8 & 31
    highest = (lane & mask) | (clamp & ~mask)
    lowest = lane & mask
    match mode:
        case "up":
            j, inside = lane - b, lane - b >= highest
        case "down":
            j, inside = lane + b, lane + b <= highest
        case "bfly":
            j, inside = lane ^ b, lane ^ b <= highest
        case _:
            j = lowest | (b & ~mask)
            inside = j <= highest
    return (j if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize(
    ("b", "width"), [(1, 32), (2, 32), (5, 32), (16, 32), (1, 8), (3, 16), (9, 4)]
)
def test_shuffles_in_segments(mode: str, b: int, width: int) -> None:
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    lines = f"shfl.sync.{mode}.b32 %r3|%p1, %r2, {b}, {c}, -1;"
    want = [shuffled(mode, lane % 32, b, c) for lane in range(64)]
    got = exchange(lines, X)
    assert got.tolist() == [int(X[lane // 32 * 32 + j]) for lane, (j, _) in enumerate(want)]
    told = exchange(lines + "selp.u32 %r3, 1, 0, %p1;", X)
    assert told.astype(bool).tolist() == [inside for _, inside in want]


def test_votes() -> None:
    even = "and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 0;"
    bits = (X & 1) == 0
    ballot = exchange(even + "vote.sync.ballot.b32 %r3, %p1, -1;", X)
    for warp in range(2):
        mask = sum(int(b) << i for i, b in enumerate(bits[32 * warp : 32 * warp + 32]))
        assert (ballot[32 * warp : 32 * warp + 32] == mask).all()
    first = np.where(np.arange(64) < 32, 2 * X, X | 1).astype(np.uint32)
    for mode, want in (("all", [True, False]), ("any", [True, False]), ("uni", [True, True])):
        got = exchange(
            even + f"vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %r3, 1, 0, %p2;", first
        )
        assert got.reshape(2, 32).astype(bool).tolist() == [[w] * 32 for w in want]


@pytest.mark.parametrize("name", ["add", "min", "max", "and", "or", "xor"])
def test_reductions(name: str) -> None:
    functions = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                 "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip
    type_name = "u32" if name in ("add", "min", "max") else "b32"
    got = exchange(f"redux.sync.{name}.{type_name} %r3, %r2, -1;", X)
    want = functions[name].reduce(X.reshape(2, 32), axis=1, dtype=np.uint32)
    np.testing.assert_array_equal(got, np.repeat(want, 32))
    if name in ("min", "max"):
        got = exchange(f"redux.sync.{name}.s32 %r3, %r2, -1;", X).view(np.int32)
        want = functions[name].reduce(X.view(np.int32).reshape(2, 32), axis=1)
        np.testing.assert_array_equal(got, np.repeat(want, 32))


def test_matching() -> None:
    x = X % 5
    got = exchange("match.any.sync.b32 %r3, %r2, -1;", x)
    for lane in range(64):
        warp = x[lane // 32 * 32 :][:32]
        assert got[lane] == sum(1 << i for i in range(32) if warp[i] == x[lane])


def test_special_registers() -> None:
    ids = np.arange(64)
    for name, want in (("%laneid", ids % 32), ("%warpid", ids // 32), ("%ntid.x", ids * 0 + 64)):
        np.testing.assert_array_equal(exchange(f"mov.u32 %r3, {name};", X), want)
    lower = (1 << (ids % 32)) - 1
    np.testing.assert_array_equal(exchange("mov.u32 %r3, %lanemask_lt;", X), lower)


DIVERGED = """
    and.b32 %r4, %r1, 1;
    setp.eq.u32 %p1, %r4, 0;
    @%p1 bra EVEN;
    add.u32 %r2, %r2, 1;
    bra MEET;
EVEN:
    add.u32 %r2, %r2, 2;
MEET:
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
"""


def test_lanes_that_part_meet_for_a_shuffle() -> None:
    own = X + np.where(np.arange(64) % 2, 1, 2).astype(np.uint32)
    np.testing.assert_array_equal(exchange(DIVERGED, X), own[np.arange(64) ^ 1])


def test_a_shuffle_waits_for_lanes_on_another_way() -> None:
    lines = """
        setp.lt.u32 %p1, %r1, 16;
        @%p1 bra LOW;
        mul.lo.u32 %r2, %r2, 3;
        shfl.sync.bfly.b32 %r3, %r2, 1, 31, 0xffff0000;
        bra MEET;
    LOW:
        shfl.sync.bfly.b32 %r3, %r2, 2, 31, 0x0000ffff;
    MEET:
    """
    x = X[:32]
    lane = np.arange(32)
    want = np.where(lane < 16, x[lane ^ 2], x[lane ^ 1] * np.uint32(3))
    np.testing.assert_array_equal(exchange(lines, x, 32), want)


def test_a_shuffle_that_some_lanes_never_reach_is_reported() -> None:
    body = (
        ADDRESS
        + """
        setp.lt.u32 %p1, %r1, 5;
        @%p1 bra OUT;
        shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
        bar.sync 0;
    OUT:
        bar.sync 0;
        ret;"""
    )
    memory = GlobalMemory()
    x, out = memory.place(X), memory.reserve((64,), np.uint32)
    report, _ = run(kernel(body, ["u64 x", "u64 out"]), x, out, memory=memory)
    assert Kind.DIVERGENT in report.kinds


def test_a_shuffle_from_a_lane_outside_the_mask_is_reported() -> None:
    body = (
        ADDRESS
        + """
        setp.lt.u32 %p1, %r1, 16;
        @%p1 shfl.sync.bfly.b32 %r3, %r2, 16, 31, 0x0000ffff;
        ret;"""
    )
    memory = GlobalMemory()
    x, out = memory.place(X), memory.reserve((64,), np.uint32)
    report, _ = run(kernel(body, ["u64 x", "u64 out"]), x, out, memory=memory)
    assert report.kinds == {Kind.DIVERGENT}


def test_loops_of_different_lengths() -> None:
    lines = """
        and.b32 %r5, %r1, 7;
        mov.u32 %r3, 0;
        mov.u32 %r4, 0;
    LOOP:
        setp.ge.u32 %p1, %r4, %r5;
        @%p1 bra DONE;
        and.b32 %r6, %r4, 1;
        setp.ne.u32 %p2, %r6, 0;
        @%p2 bra NEXT;
        add.u32 %r3, %r3, %r2;
    NEXT:
        add.u32 %r4, %r4, 1;
        bra LOOP;
    DONE:
    """
    turns = (np.arange(64) & 7) // 2 + (np.arange(64) & 1)
    np.testing.assert_array_equal(exchange(lines, X), X * turns.astype(np.uint32))


def test_predicated_instructions_leave_others_alone() -> None:
    lines = (
        "mov.u32 %r3, 9; setp.gt.u32 %p1, %r1, 40; @%p1 mov.u32 %r3, 1; @!%p1 add.u32 %r3, %r3, 1;"
    )
    np.testing.assert_array_equal(exchange(lines, X), np.where(np.arange(64) > 40, 1, 10))


def test_hints_do_nothing_and_traps_are_faults() -> None:
    x = X[:32]
    lines = """
        nanosleep.u32 20;
        setmaxnreg.dec.sync.aligned.u32 40;
        prefetch.global.L2 [%d2];
        add.u32 %r3, %r2, 1;
    """
    np.testing.assert_array_equal(exchange(lines, x, 32), x + 1)
    report, _ = run(kernel("trap; ret;"))
    assert report.kinds == {Kind.TRAP}


def test_a_loop_without_end_is_reported() -> None:
    memory = GlobalMemory()
    report, _ = run(kernel("L: bra L; ret;"), memory=memory, steps=1000)
    assert report.kinds == {Kind.HANG}
