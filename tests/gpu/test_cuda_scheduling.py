"""CUDA schedules: what the heuristics choose for each GPU, and what is refused and how."""

from __future__ import annotations

from typing import Any

import pytest

from attngen.backends.numba_cuda.scheduling import shared_bytes
from attngen.driver import run_stages
from attngen.errors import SpecError
from attngen.ir.schedule import CudaSchedule
from attngen.spec.model import ScheduleOverride
from attngen.targets import CUDA_TARGETS, SM_80, SM_86, CudaTarget

SPEC: dict[str, Any] = {"name": "demo", "heads": 8, "head_dim": 128}


def schedule(target: CudaTarget, spec: dict[str, Any] = SPEC, **values: int) -> CudaSchedule:
    overrides = tuple(ScheduleOverride("cuda", n, v, source="call") for n, v in values.items())
    chosen = run_stages(spec, target=target, overrides=overrides).schedule
    assert isinstance(chosen, CudaSchedule)
    return chosen


@pytest.mark.parametrize("arch", CUDA_TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head_dim", [1, 16, 64, 100, 128, 256, 576])
def test_a_proposal_is_legal_and_says_why(arch: str, dtype: str, head_dim: int) -> None:
    target = CUDA_TARGETS[arch]
    spec = {**SPEC, "dtype": dtype, "head_dim": head_dim}
    chosen = schedule(target, spec)  # `propose` judges its own values too
    assert all(decision.why for _, decision in chosen.decisions())
    assert shared_bytes(chosen, run_stages(spec, target=target).ir.dtype) <= target.shared_bytes


def test_a_thread_holds_no_more_outputs_than_registers_are_set_aside() -> None:
    for value_dim in (16, 64, 128, 256, 1000):
        chosen = schedule(SM_80, {**SPEC, "value_dim": value_dim})
        rows = chosen.block_q.value // (2 * chosen.warps.value)
        assert rows * chosen.value_panel.value // 16 <= 48


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"warps": 0}, "'warps' is 0, and a block has from 1 to 32", "use 4"),
        ({"depth": 0}, "'depth' is 0, and must be from 1 to 256", "use 32"),
        ({"block_q": 60}, "'block_q' is 60, and must be a multiple of", "use 56 or 64"),
        ({"block_kv": 40}, "'block_kv' is 40, and must be a multiple of", "use 32 or 64"),
        ({"value_panel": 20}, "'value_panel' is 20, and must be a multiple of", "use 16 or 32"),
        (
            {"block_q": 512},
            "a thread would have 256 scores, and marks at most 63",
            "smaller block_q",
        ),
        (
            {"block_q": 96, "value_panel": 256},
            "registers, and sm_86 has 255",
            "use at most block_q: 80",
        ),
        ({"warps": 32, "block_q": 256}, "of shared memory, and sm_86 gives it 99 KiB", "smaller"),
        ({"lanes": 8}, "'lanes' is no scheduling decision", "one of warps"),
        ({"block_q": "many"}, "'block_q' must be an integer", "for example 48"),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        schedule(SM_86, **values)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert hint in diagnostic.hint
    assert diagnostic.key.startswith("schedule.cuda.")


def test_a_spec_overrides_one_target_and_not_the_other() -> None:
    spec = {**SPEC, "schedule": {"cuda": {"block_q": 32}, "cpu": {"block_q": 96}}}
    chosen = schedule(SM_80, spec)
    assert (chosen.block_q.value, chosen.block_q.source) == (32, "spec")


def test_blocks_of_a_multiprocessor() -> None:
    assert SM_80.blocks(threads=128, registers=255, shared=38144) == 2
    assert SM_80.blocks(threads=128, registers=64, shared=60 << 10) == 2
    assert SM_86.blocks(threads=512, registers=32, shared=0) == 3


def test_differential_attention_is_refused() -> None:
    with pytest.raises(SpecError, match="differential attention is not computed on CUDA"):
        run_stages("diff_transformer_3b", target=SM_80).schedule  # noqa: B018
