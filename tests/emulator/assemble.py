"""Small PTX kernels for tests: one written out, or made around a few lines of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from ptx.launch import launch
from ptx.memory import GlobalMemory
from ptx.module import dtype_of
from ptx.report import Report

Array = npt.NDArray[Any]

HEADER = """
.version 9.0
.target sm_90a
.address_size 64
"""
REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .b64 %d<64>;
    .reg .f32 %f<64>;
    .reg .f64 %e<16>;
"""


def kernel(body: str, parameters: Sequence[str] = (), shared: str = "") -> str:
    """An entry with these lines; parameters are ``u64 x``, ``u32 n`` and so on."""
    listed = ",\n".join(f"    .param .{p.split()[0]} {p.split()[1]}" for p in parameters)
    return f"{HEADER}{shared}\n.visible .entry test(\n{listed}\n)\n{{{REGISTERS}{body}\n}}\n"


LOAD = {  # how a lane's value of a type comes from an address, and where it stands
    1: ("u8", "%h"),
    2: ("b16", "%h"),
    4: ("b32", "%r"),
    8: ("b64", "%d"),
}


def register(type_name: str, number: int) -> str:
    if type_name == "pred":
        return f"%p{number}"
    if type_name == "f32":
        return f"%f{number}"
    if type_name == "f64":
        return f"%e{number}"
    return f"{LOAD[dtype_of(type_name).itemsize][1]}{number}"


def evaluate(lines: str, inputs: dict[str, Array], result: str, types: dict[str, str]) -> Array:
    """Run `lines` in one thread for each element.

    ``$name`` in them stands for an input's register, ``$out`` for the result's, of type `result`.
    """
    count = next(iter(inputs.values())).size
    memory = GlobalMemory()
    arguments = [memory.place(values) for values in inputs.values()]
    out = memory.reserve((count,), "u1" if result == "pred" else dtype_of(result))
    body = ["mov.u32 %r60, %tid.x;", "mov.u32 %r61, %ctaid.x;", "mov.u32 %r62, %ntid.x;"]
    body += ["mad.lo.u32 %r60, %r61, %r62, %r60;", f"setp.ge.u32 %p15, %r60, {count};"]
    body += ["@%p15 bra DONE;"]
    text = lines
    for number, name in enumerate(inputs):
        type_name = types[name]
        place, size = register(type_name, number + 1), dtype_of(type_name).itemsize
        load = type_name if type_name in ("f32", "f64") else LOAD[size][0]
        body += [f"ld.param.u64 %d60, [{name}];", f"mul.wide.u32 %d61, %r60, {size};"]
        body += ["add.s64 %d62, %d60, %d61;", f"ld.global.{load} {place}, [%d62];"]
        text = text.replace(f"${name}", place)
    place, size = register(result, 10), dtype_of(result).itemsize
    store = result if result in ("f32", "f64") else LOAD[size][0]
    body += [text.replace("$out", place)]
    if result == "pred":
        body += [f"selp.u16 %h31, 1, 0, {place};"]
        place = "%h31"
    body += ["ld.param.u64 %d60, [result];", f"mul.wide.u32 %d61, %r60, {size};"]
    body += ["add.s64 %d62, %d60, %d61;", f"st.global.{store} [%d62], {place};"]
    body += ["DONE:", "ret;"]
    ptx = kernel("\n".join(body), [*(f"u64 {name}" for name in inputs), "u64 result"])
    report = launch(
        ptx,
        memory,
        grid=(-(-count // 64),),
        block=(64,),
        arguments=[*arguments, out],
        outputs=[out],
        noise=0.0,
    )
    report.check()
    return memory.read(out)


def run(
    ptx: str, *arguments: object, grid: Any = (1,), block: Any = (32,), **more: Any
) -> tuple[Report, GlobalMemory]:
    """Launch with arrays placed as writable inputs, and shapes as outputs."""
    memory = more.pop("memory", None) or GlobalMemory()
    report = launch(ptx, memory, grid=grid, block=block, arguments=list(arguments), **more)
    return report, memory
