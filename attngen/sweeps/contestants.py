"""Whom a point can be compared with: the benchmark's peers, by the names that people use.

Input: a spec and a call. Output: the benchmark's case that says the same, or why there is none.
"""

from __future__ import annotations

from attngen.bench.cases import Case
from attngen.bench.peers import Peer, all_peers
from attngen.errors import CallValueError
from attngen.spec.model import Spec
from attngen.sweeps.points import Call

SHORT_NAMES = {
    "torch": ("torch-sdpa",),
    "flex": ("torch-flex",),
    "onnxruntime": ("ort-mha", "ort-gqa", "ort-attention"),
}
COMPILED_FOR_ONE = frozenset({"torch-flex"})
"""Peers that forget what they compiled for a case when they are given the next."""

_UNKNOWN_TO_PEERS = (
    "scale",
    "softcap",
    "score",
    "bias",
    "mask",
    "prefix",
    "chunk",
    "sink",
    "inputs",
)


def peer_names(asked: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """The peers that `asked` names, by short names or by their own, each once.

    Raises:
        CallValueError: there is no such peer.
    """
    known = [peer.name for peer in all_peers()]
    found: dict[str, None] = {}
    for name in asked:
        names = SHORT_NAMES.get(name, (name,))
        for own in names:
            if own not in known:
                listed = ", ".join((*SHORT_NAMES, *known))
                raise CallValueError(f"peers: expected some of {listed}, got {name!r}")
            found[own] = None
    return tuple(found)


def chosen_peers(names: tuple[str, ...]) -> tuple[Peer, ...]:
    """The peers of these names, in this order."""
    peers = {peer.name: peer for peer in all_peers()}
    return tuple(peers[name] for name in names)


def case_of(spec: Spec, call: Call) -> Case | str:
    """The case of the benchmark that is `spec` at `call`; the reason where there is none."""
    for key in _UNKNOWN_TO_PEERS:
        if getattr(spec, key) not in (None, False, ()):
            return f"peers have no {key}"
    if spec.dtype.name != "float32":
        return "peers are given float32 alone"
    if spec.value_dim != spec.head_dim:
        return "peers are given values as wide as keys"
    if spec.causal == "top_left" and call.q_len != call.kv_len:
        return "peers are causal from the bottom right"
    if spec.dilation > 1 or "lse" in spec.outputs:
        return f"peers have no {'dilation' if spec.dilation > 1 else 'lse'}"
    window = None
    if spec.window is not None and (spec.window.left >= 0 or spec.window.right >= 0):
        if spec.causal == "none" or spec.window.right > 0 or spec.window.left < 0:
            return "peers have causal windows alone"
        window = spec.window.left + 1
    return Case(
        label=spec.name,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        q_len=call.q_len,
        kv_len=call.kv_len,
        head_dim=spec.head_dim,
        causal=spec.causal != "none",
        window=window,
        d_model=spec.d_model,
        batch=call.batch,
    )
