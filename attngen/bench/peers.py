"""Who can do a line of the benchmark, each behind one small protocol.

A peer says why it is not :meth:`~Peer.available`, or prepares a case: everything that a user would
do once (compiling, packing, building a mask, converting layouts) happens there, outside the timing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from attngen.bench.cases import Array, Case, CoreData, Data, LayerData


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

    def prepare(self, case: Case, data: Data, threads: int) -> Prepared:
        """Make `case` ready to run on `threads` threads.

        Raises:
            CannotDoError: if the peer cannot express the case.
        """


def missing_module(name: str) -> str | None:
    """The reason to give when module `name` is not installed; None if it is."""
    return None if importlib.util.find_spec(name) else f"{name} is not installed"


def core_only(case: Case, data: Data) -> CoreData:
    """The data of a core case; a layer is more than the peer offers."""
    if case.d_model is not None or isinstance(data, LayerData):
        raise CannotDoError("attention only, no layer")
    return data


class Ours:
    """The kernels this package compiles."""

    name = "attngen"

    def available(self) -> str | None:
        """Always."""
        return None

    def prepare(self, case: Case, data: Data, threads: int) -> Prepared:
        """Compile the case; a layer has its weights bound."""
        import numba
        import numpy as np

        import attngen

        numba.set_num_threads(threads)
        attention = attngen.compile(case.spec)
        if isinstance(data, LayerData):
            weights = attngen.Weights(q=data.w_q, k=data.w_k, v=data.w_v, o=data.w_o)
            bound = attention.bind(weights)
            out = np.full_like(data.x, np.nan)
            return Prepared(lambda: bound(data.x, out=out), np.asarray)
        out = np.full_like(data.q, np.nan)
        return Prepared(lambda: attention(data.q, data.k, data.v, out=out), np.asarray)


def all_peers() -> tuple[Peer, ...]:
    """Every peer, in the order in which tables show them."""
    from attngen.bench.onnx_peers import OnnxAttention, OnnxGroupQuery, OnnxMultiHead
    from attngen.bench.torch_peers import FlexAttention, TorchSdpa

    return (TorchSdpa(), FlexAttention(), OnnxMultiHead(), OnnxGroupQuery(), OnnxAttention())
