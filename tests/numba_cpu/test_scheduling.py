"""Schedules: what the heuristics choose for hand-made targets, and what is refused and how."""

from __future__ import annotations

import dataclasses

import pytest

from attngen.driver import run_stages
from attngen.errors import SpecError
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX2, AVX512, GENERIC, NEON

SPEC = {"name": "demo", "heads": 8, "head_dim": 128}


def schedule(target, spec=SPEC, **values):
    overrides = tuple(ScheduleOverride("cpu", n, v, source="call") for n, v in values.items())
    return run_stages(spec, target=target, overrides=overrides).schedule


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON, GENERIC], ids=lambda t: t.isa)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head_dim", [1, 64, 128, 576])
def test_the_register_tile_fits_and_blocks_are_whole(target, dtype, head_dim) -> None:
    chosen = schedule(target, {**SPEC, "dtype": dtype, "head_dim": head_dim})
    scalars, vectors = chosen.tile_scalars.value, chosen.tile_vectors.value
    assert scalars * vectors + vectors + 1 <= target.vector_registers
    assert chosen.lanes.value == max(1, target.vector_bytes // (4 if dtype == "float32" else 8))
    assert chosen.block_q.value % chosen.panel_rows == 0
    assert chosen.block_kv.value % scalars == 0
    assert all(decision.why for _, decision in chosen.decisions())


def test_blocks_follow_the_caches() -> None:
    small = dataclasses.replace(AVX512, l1_bytes=16 << 10, l2_bytes=256 << 10)
    assert schedule(small).block_kv.value < schedule(AVX512).block_kv.value
    assert schedule(small).block_q.value < schedule(AVX512).block_q.value


def test_later_decisions_follow_from_a_given_one() -> None:
    chosen = schedule(AVX512, tile_vectors=1)
    assert chosen.tile_vectors.source == "call"
    assert chosen.block_q.value % 16 == 0
    assert chosen.block_q.source == "heuristic"


def test_a_decision_of_the_spec_names_its_source() -> None:
    chosen = schedule(AVX512, {**SPEC, "schedule": {"cpu": {"block_q": 96}}})
    assert (chosen.block_q.value, chosen.block_q.source) == (96, "spec")
    assert schedule(AVX512, {**SPEC, "schedule": {"cpu": {"block_q": 96}}}, block_q=48) != chosen


REFUSED = {
    "unknown": ({"blok_q": 96}, "'blok_q' is no scheduling decision", "did you mean 'block_q'?"),
    "no number": ({"block_q": "many"}, "'block_q' must be an integer", "for example 192"),
    "no multiple": (
        {"block_q": 100},
        "'block_q' is 100, and must be a multiple of a panel (tile_vectors × lanes) = 48",
        "use 96 or 144",
    ),
    "lanes": ({"lanes": 3}, "'lanes' is 3, and avx512 has vectors of up to 16", "use 1 or 2 or 4"),
    "registers": (
        {"tile_scalars": 16},
        "a 16×3 register tile needs 52 registers, and avx512 has 32",
        "use at most tile_scalars: 9 with tile_vectors: 3",
    ),
    "empty tile": ({"tile_scalars": 0}, "a register tile has at least 1", "use 1 or more"),
    "negative": ({"short_rows": -1}, "'short_rows' is -1", "use 16"),
    "projection": ({"projection": "cublas"}, "'projection' is 'cublas'", "use generated or blas"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_illegal_values_are_refused_with_the_nearest_legal_ones(name) -> None:
    values, fact, hint = REFUSED[name]
    with pytest.raises(SpecError) as caught:
        schedule(AVX512, **values)
    (diagnostic,) = caught.value.diagnostics
    assert fact in diagnostic.message
    assert hint in diagnostic.hint
    assert diagnostic.key == f"schedule.cpu.{next(iter(values))}"
    assert diagnostic.code == "E-SCHEDULE"
