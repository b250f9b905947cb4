from __future__ import annotations

import dataclasses
import math

import pytest
from middle.builders import CAUSAL, attention, flash, softcapped, split

from attngen.dtypes import FLOAT32, FLOAT64
from attngen.errors import InternalError
from attngen.ir.expr import DOT, SCORE, TRUE, Binary, Const, Load, Unary, Var
from attngen.ir.kernel import Buffer, KernelIR, Projection, SplitTile
from attngen.ir.verify import verify_attention, verify_kernel
from attngen.mask_tiles import plan

PROGRAM_IR = attention(score=DOT, query_scale=0.5, base="2", mask=CAUSAL, sink=True)


def test_sound_values_pass() -> None:
    verify_attention(attention())
    verify_attention(attention(score=softcapped(0.5, 20.0), mask=CAUSAL, d_model=7))
    masked = split(mask=plan(CAUSAL), sink=True)
    verify_kernel(KernelIR(PROGRAM_IR, (flash(), masked)))
    layer = dataclasses.replace(PROGRAM_IR, d_model=32)
    verify_kernel(KernelIR(layer, (flash(), Projection(FLOAT32, 8, 6, 2, 96, 512, 256, ()))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "name: is no identifier"),
        ({"heads": 0}, "heads: must be positive"),
        ({"head_dim": -1}, "head_dim: must be positive"),
        ({"value_dim": 0}, "value_dim: must be positive"),
        ({"d_model": 0}, "d_model: must be positive"),
        ({"kv_heads": 3}, "kv_heads: 3 does not divide 4"),
        ({"query_scale": math.inf}, "query_scale: is not finite"),
        ({"score": TRUE}, "score: is boolean"),
        ({"score": Var("k_last")}, "score: reads k_last"),
        ({"score": Var("slope")}, "score: unknown variable 'slope'"),
        ({"score": Const(math.nan)}, "score: has the constant nan"),
        ({"score": Binary("mul", DOT, Const(math.inf))}, "score: has the constant inf"),
        ({"mask": DOT}, "mask: is real, not boolean"),
        ({"mask": Binary("lt", Var("k_first"), Const(2))}, "mask: reads k_first"),
        ({"mask": Unary("not", Var("q"))}, "mask: 'not' does not take integer operands"),
        ({"mask": Binary("lt", Var("q"), Const(1 << 62))}, "mask: has the constant"),
        ({"alignment": "left"}, "alignment: 'left'"),
        ({"base": "10"}, "base: '10'"),
        ({"outputs": ("lse",)}, "outputs: "),
        ({"outputs": ("lse", "out")}, "outputs: "),
        ({"sink": True, "off_by_one": True}, "off_by_one: is a sink"),
        ({"activation": DOT}, "activation: reads dot"),
        ({"difference": Const(0.5), "sink": True}, "sink: is of which of a head's two maps"),
        ({"difference": Var("q")}, "difference: reads q"),
        ({"difference": Load("factor", (Var("h"),))}, "inputs.factor: is missing"),
        ({"activation": TRUE}, "activation: is boolean, not real"),
        ({"activation": SCORE, "sink": True}, "sink: is part of a softmax alone"),
        ({"activation": SCORE, "outputs": ("out", "lse")}, "outputs: there is no lse"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unsound_attention_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_attention(attention(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": FLOAT64}, "FlashForward.dtype: is float64, not float32"),
        ({"lanes": 0}, "FlashForward.lanes: must be positive"),
        ({"block_q": 72}, "FlashForward.block_q: must be a multiple of 16"),
        ({"block_kv": 50}, "FlashForward.block_kv: must be a multiple of 6"),
        ({"tile_scalars": 0}, "FlashForward.tile_scalars: must be positive"),
        ({"query_scale": 1.0}, "FlashForward.query_scale: is 1.0"),
        ({"sink": False}, "FlashForward.sink: is False"),
        ({"off_by_one": True}, "FlashForward.off_by_one: is True"),
        ({"difference": Const(0.5)}, "FlashForward.difference: is"),
        ({"weight": DOT}, "FlashForward.weight: is not the activation"),
        ({"mask": None}, "FlashForward.mask: is missing"),
        ({"mask": plan(TRUE)}, "FlashForward.mask.predicate: is not"),
        ({"buffers": (Buffer("a", 0, ""),)}, "FlashForward.buffers.a: must be positive"),
        ({"buffers": (Buffer("a", 1, ""),) * 2}, "FlashForward.buffers: 'a' occurs twice"),
        ({"buffers": (Buffer("a b", 1, ""),)}, "FlashForward.buffers: 'a b' is no identifier"),
        (
            {"mask": dataclasses.replace(plan(CAUSAL), always=Var("q_first"))},
            "FlashForward.mask.always: is integer",
        ),
        (
            {"mask": dataclasses.replace(plan(CAUSAL), possible=CAUSAL)},
            "FlashForward.mask.possible: reads k, q",
        ),
        (
            {"mask": dataclasses.replace(plan(CAUSAL), key_last=Var("k_last"))},
            "FlashForward.mask.key_last: reads k_last",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unsound_flash_kernel_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_kernel(KernelIR(PROGRAM_IR, (flash(**changes),)))


def test_other_unsound_kernels_are_named() -> None:
    masked = {"mask": plan(CAUSAL), "sink": True}
    for kernel, message in (
        (split(max_rows=17, **masked), "SplitKV.max_rows: is more than a task takes"),
        (split(tiles=(SplitTile(2, 1),), **masked), "SplitKV.tiles: end with more than one row"),
        (split(split_kv=0, **masked), "SplitKV.split_kv: must be positive"),
        (Projection(FLOAT32, 8, 6, 2, 96, 512, 256, ()), "Projection.dtype: a core has no"),
        (Projection(FLOAT32, 8, 6, 2, 96, 520, 256, ()), "Projection.block_n: must be a multi"),
    ):
        with pytest.raises(InternalError, match=message):
            verify_kernel(KernelIR(PROGRAM_IR, (kernel,)))


def test_a_program_has_kernels_and_base_two() -> None:
    with pytest.raises(InternalError, match="kernels: is empty"):
        verify_kernel(KernelIR(PROGRAM_IR, ()))
    with pytest.raises(InternalError, match=r"attention\.base: kernels work in base 2"):
        verify_kernel(KernelIR(dataclasses.replace(PROGRAM_IR, base="e"), (flash(),)))
