"""Who can do a line of the benchmark, each behind one small protocol.

A peer says why it is not :meth:`~Peer.available`, or prepares a case: everything that a user would
do once (compiling, packing, building a mask, converting layouts) happens there, outside the timing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from attngen.bench.cases import Case
from attngen.inputs import Array, CoreInputs, Inputs, LayerInputs


class CannotDoError(Exception):
    """A peer has no way to express a case; the text is the reason shown in the table."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case made ready.

    Attributes:
        call: does the work once, and is what gets timed.
        to_numpy: the result of `call` as (B, q_len, heads, head_dim) or (B, S, d_model).
        allocates_result: whether each call makes a new array for its result; if not, it is written
            to memory that stands ready (and has been touched).
    """

    call: Callable[[], Any]
    to_numpy: Callable[[Any], Array]
    allocates_result: bool = False


class Peer(Protocol):
    """Something that computes attention."""

    @property
    def name(self) -> str:
        """What the peer is called in a table and in ``--peers``."""

    def available(self) -> str | None:
        """Why this peer cannot be used here at all; None if it can."""

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """Make `case` ready to run on `threads` threads.

        Raises:
            CannotDoError: if the peer cannot express the case.
        """


def missing_module(name: str) -> str | None:
    """The reason to give when module `name` is not installed; None if it is."""
    return None if importlib.util.find_spec(name) else f"{name} is not installed"


def core_only(inputs: Inputs) -> CoreInputs:
    """The inputs of a core; a layer is more than the peer offers."""
    if isinstance(inputs, LayerInputs):
        raise CannotDoError("attention only, no layer")
    return inputs


class Ours:
    """The kernels this package compiles."""

    name = "attngen"

    def available(self) -> str | None:
        """Always."""
        return None

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        """Compile the case; a layer has its weights bound."""
        import numba

        from attngen.backends.numba_cpu.threads import prepare as prepare_threads
        from attngen.driver import compile_spec
        from attngen.trial import prepare_call

        prepare_threads()
        numba.set_num_threads(threads)
        return Prepared(prepare_call(compile_spec(case.spec), inputs), lambda out: out)


def all_peers() -> tuple[Peer, ...]:
    """Every peer, in the order in which tables show them."""
    from attngen.bench.onnx_peers import OnnxAttention, OnnxGroupQuery, OnnxMultiHead
    from attngen.bench.torch_peers import FlexAttention, TorchSdpa

    return (TorchSdpa(), FlexAttention(), OnnxMultiHead(), OnnxGroupQuery(), OnnxAttention())
