"""Try a spec out: compile it, run it on random input, check the result, and time it.

Input: a spec and lengths. Output: a :class:`Trial` with everything that ``attngen run`` prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attngen.attention import Attention, CoreAttention, LayerAttention
from attngen.backends.numba_cpu.peak import measure_fma
from attngen.backends.numba_cpu.probe import probe
from attngen.check import Verdict, expect
from attngen.costs import Cost, Lengths, cost
from attngen.driver import Source, compile_spec, run_stages
from attngen.inputs import Array, CoreInputs, Inputs, random_inputs
from attngen.spec.model import ScheduleOverride
from attngen.timing import Timing, take_turns


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial found.

    Attributes:
        cost: the work of one call.
        peak: measured FMA peak of `threads` threads, FLOP/s.
        first_call: seconds of the first call, which loads or compiles the kernels.
    """

    name: str
    dtype: str
    lengths: Lengths
    threads: int
    cost: Cost
    peak: float
    first_call: float
    timing: Timing
    verdict: Verdict

    @property
    def rate(self) -> float:
        """Useful FLOP/s of the median call."""
        return self.cost.flop / self.timing.median

    @property
    def share_of_peak(self) -> float:
        """The rate as a share of the measured peak."""
        return self.rate / self.peak

    def to_json(self) -> dict[str, Any]:
        """The trial as plain data."""
        data = asdict(self)
        data["cost"]["flop"] = self.cost.flop
        data["cost"]["bytes"] = self.cost.bytes
        data["timing"]["median"] = self.timing.median
        data["verdict"]["good"] = self.verdict.good
        return data | {"flop_per_s": self.rate, "share_of_peak": self.share_of_peak}


def run_trial(
    source: Source,
    lengths: Lengths,
    *,
    overrides: tuple[ScheduleOverride, ...] = (),
    threads: int,
    repeat: int = 7,
    seed: int = 0,
) -> Trial:
    """Compile, run, check and time; Numba is set to `threads` threads already.

    Raises:
        SpecError: the spec or an override has mistakes.
    """
    stages = run_stages(source, overrides=overrides)
    inputs = random_inputs(stages.ir, lengths, seed)
    call = prepare_call(compile_spec(source, overrides=overrides), inputs)
    start = time.perf_counter()
    result = call()
    first_call = time.perf_counter() - start
    verdict = expect(stages.ir, inputs).judge(result)
    (timing,) = take_turns([call], min_rounds=repeat, most_rounds=repeat)
    return Trial(
        name=stages.ir.name,
        dtype=stages.ir.dtype.name,
        lengths=lengths,
        threads=threads,
        cost=cost(stages.ir, lengths, inputs.side),
        peak=measure_fma(probe(), dtype=stages.ir.dtype, threads=threads),
        first_call=first_call,
        timing=timing,
        verdict=verdict,
    )


def prepare_call(attention: Attention, inputs: Inputs) -> Callable[[], Array]:
    """A call without arguments that writes to, and gives, one output array; weights are bound."""
    if isinstance(inputs, CoreInputs):
        assert isinstance(attention, CoreAttention)  # noqa: S101 - same IR
        core = attention
        shape = (*inputs.q.shape[:-2], attention.spec.heads, inputs.v.shape[-1])
        out = np.full(shape, np.nan, inputs.q.dtype)

        def call_core() -> Array:
            core(
                inputs.q,
                inputs.k,
                inputs.v,
                sink=inputs.sink,
                out=out,
                return_lse=False,
                **inputs.side,
            )
            return out

        return call_core
    bound = attention.bind(inputs.weights)
    assert isinstance(bound, LayerAttention)  # noqa: S101 - what bind gives
    layer_out = np.full_like(inputs.x, np.nan)
    side: dict[str, Any] = dict(inputs.side)

    def call_layer() -> Array:
        bound(
            inputs.x,
            context=inputs.context,
            sink=inputs.sink,
            out=layer_out,
            return_lse=False,
            **side,
        )
        return layer_out

    return call_layer
