"""PTX text to instructions."""

from __future__ import annotations

import pytest
from emulator.assemble import HEADER, kernel
from ptx.module import Address, Guard, Immediate, Pair, PtxError, Register, Symbol, Vector
from ptx.parse import parse

TEXT = (
    HEADER
    + """
.common .global .align 8 .u64 environment;
.extern .shared .align 1024 .b8 dynamic[];
.global .align 4 .b8 message[6] = {1, 2, 3};
.file 1 "attention.py"

// .entry nothing
.visible .entry first(
    .param .u64 first_param_0,
    .param .u64 .ptr .global .align 16 first_param_1,
    .param .align 4 .b8 first_param_2[8]
)
.maxntid 128, 2, 1
.minnctapersm 1
{
    .reg .pred %p<3>;
    .reg .b32 %r<5>, %other;
    .local .align 8 .b8 depot[40];
    .loc 1 12 3
    mov.u32 %r1, %tid.x; /* a comment; with { braces */
$L_loop:
    .pragma "nounroll";
    .loc 1 14 3
    { .reg .b32 t; shl.b32 t, %r1, 2; { .reg .b32 t; mov.b32 t, 1; } mov.b32 %r2, t; }
    shfl.sync.bfly.b32 %r3|%p1, %r1, 0x1, 31, -1;
    ld.shared.v2.u32 {%r3, _}, [dynamic+16];
    @!%p1 st.local.u32 [%r2+-8], %r3;
    @%p2 bra $L_loop;
    ret;
}
.visible .entry second() { ret; }
"""
)


def test_kernels_with_their_parameters_and_limits() -> None:
    module = parse(TEXT)
    assert (module.version, module.target, list(module.kernels)) == (
        "9.0", "sm_90a", ["first", "second"],
    )  # fmt: skip
    first = module.kernels["first"]
    assert [(p.name, p.type) for p in first.parameters] == [
        ("first_param_0", "u64"), ("first_param_1", "u64"), ("first_param_2", "b8"),
    ]  # fmt: skip
    assert first.max_threads == 256
    assert {v.name: (v.space, v.align, v.size) for v in first.variables} == {
        "environment": ("global", 8, 8),
        "dynamic": ("shared", 1024, None),
        "message": ("global", 4, 6),
        "depot": ("local", 8, 40),
    }
    message = next(v for v in first.variables if v.name == "message")
    assert message.data == b"\1\2\3\0\0\0"
    with pytest.raises(ValueError, match="unpack"):
        _ = module.only


def test_instructions_with_their_lines() -> None:
    first = parse(TEXT).kernels["first"]
    lines = TEXT.splitlines()
    for instruction in first.instructions:
        assert instruction.opcode in lines[instruction.line - 1]
    assert [x.source for x in first.instructions] == [12] + [14] * (len(first.instructions) - 1)
    assert first.labels == {"$L_loop": 1}
    assert first.loops == [(1, len(first.instructions) - 2)]
    assert first.in_loop(1)
    assert not first.in_loop(0)


def test_names_end_with_their_scope() -> None:
    first = parse(TEXT).kernels["first"]
    shift, inner, after = first.instructions[1:4]
    assert shift.operands[0] == after.operands[1]
    assert inner.operands[0] != shift.operands[0]
    assert first.registers["%other"] == "b32"


def test_operands() -> None:
    first = parse(TEXT).kernels["first"]
    _, _, _, _, shuffle, load, save, branch, _ = first.instructions
    r1, r2, r3 = (Register(f"%r{i}", "b32") for i in (1, 2, 3))
    p1, p2 = (Register(f"%p{i}", "pred") for i in (1, 2))
    assert shuffle.operands == (
        Pair(r3, p1), r1, Immediate(1), Immediate(31), Immediate(-1),
    )  # fmt: skip
    assert load.operands == (Vector((r3, None)), Address(Symbol("dynamic"), 16))
    assert (save.guard, save.operands) == (Guard(p1, True), (Address(r2, -8), r3))
    assert (branch.guard, branch.operands) == (Guard(p2, False), (Symbol("$L_loop"),))
    assert [x.name for x in shuffle.registers()] == ["%r3", "%p1", "%r1"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.s32 %r1, %r2, <>;", r"line \d+: operand '<>'"),
        ("ld.global.u32 %r1, [%d1*2];", r"line \d+: address"),
        ("@%p77 ret;", r"line \d+: register %p77"),
        ("%r1 = 3;", r"line \d+: not an instruction"),
    ],
)
def test_errors_name_the_line(body: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        parse(kernel(body))


def test_text_without_a_kernel() -> None:
    with pytest.raises(PtxError, match=r"no \.entry"):
        parse(HEADER)
    with pytest.raises(PtxError, match="brace"):
        parse(kernel("ret;").rstrip().rstrip("}"))
