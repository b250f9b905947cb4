"""Whom a point can be compared with: the benchmark's peers, by the names that people use.

Input: a spec and a call. Output: the benchmark's case that says the same, or why there is none. A
case that does not mean exactly what the spec means is none.
"""

from __future__ import annotations

from dataclasses import fields, replace

from attngen.bench.cases import Case
from attngen.bench.peers import Peer, all_peers
from attngen.errors import CallValueError
from attngen.spec.model import Spec, Window
from attngen.spec.reader import read_spec
from attngen.sweeps.points import Call

SHORT_NAMES = {
    "torch": ("torch-sdpa",),
    "flex": ("torch-flex",),
    "onnxruntime": ("ort-mha", "ort-gqa", "ort-attention"),
}
COMPILED_FOR_ONE = frozenset({"torch-flex"})
"""Peers that forget what they compiled for a case when they are given the next."""


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
    window = spec.window if spec.window != Window() else None
    causal = spec.causal
    if causal == "top_left" and call.q_len == call.kv_len:
        causal = "bottom_right"
    case = Case(
        label=spec.name,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        q_len=call.q_len,
        kv_len=call.kv_len,
        head_dim=spec.head_dim,
        causal=causal != "none",
        window=None if window is None else window.left + 1,
        d_model=spec.d_model,
        batch=call.batch,
    )
    found = read_spec(case.spec)
    meant = replace(spec, name=found.name, description="", causal=causal, window=window)
    for field in fields(Spec):
        if field.name != "schedule" and getattr(found, field.name) != getattr(meant, field.name):
            return f"peers are not given this {field.name}"
    return case
