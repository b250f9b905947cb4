"""Each peer computes what its case says, or says why it cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attngen.bench.cases import Case
from attngen.bench.peers import CannotDoError, Peer, all_peers
from attngen.check import expect
from attngen.inputs import CoreInputs, random_inputs
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

CASES = {
    "full": Case("full", 4, 4, 24, 24, 16),
    "causal grouped": Case("causal grouped", 4, 2, 24, 24, 16, causal=True),
    "causal": Case("causal", 4, 4, 24, 24, 16, causal=True),
    "window": Case("window", 4, 4, 24, 24, 16, causal=True, window=5),
    "one query": Case("one query", 4, 4, 1, 24, 16, causal=True),
    "layer": Case("layer", 4, 2, 24, 24, 16, causal=True, d_model=32),
}
QUICK_PEERS = [peer for peer in all_peers() if peer.name != "torch-flex"]
CAN = {
    "torch-sdpa": {"full", "causal grouped", "causal", "window", "one query", "layer"},
    "ort-mha": {"full", "causal", "one query"},
    "ort-gqa": {"causal grouped", "causal", "window", "one query"},
    "ort-attention": {"full", "causal grouped", "causal", "one query"},
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("peer", QUICK_PEERS, ids=lambda peer: peer.name)
def test_peer_is_right_or_says_why_not(peer: Peer, case: Case) -> None:
    if reason := peer.available():
        pytest.skip(reason)
    ir = elaborate(read_spec(case.spec))
    inputs = random_inputs(ir, case.lengths)
    if case.label not in CAN[peer.name]:
        with pytest.raises(CannotDoError):
            peer.prepare(case, inputs, 1)
        return
    prepared = peer.prepare(case, inputs, 1)
    assert expect(ir, inputs).judge(prepared.to_numpy(prepared.call())).good


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Inductor warns as it likes
@pytest.mark.parametrize("label", ["causal grouped", "window", "one query"])
def test_flex_attention_is_right(label: str) -> None:
    (peer,) = (peer for peer in all_peers() if peer.name == "torch-flex")
    if reason := peer.available():
        pytest.skip(reason)
    case = CASES[label]
    ir = elaborate(read_spec(case.spec))
    inputs = random_inputs(ir, case.lengths)
    prepared = peer.prepare(case, inputs, 1)
    assert expect(ir, inputs).judge(prepared.to_numpy(prepared.call())).good


def test_causal_with_fewer_queries_is_refused_where_the_alignment_differs() -> None:
    case = replace(CASES["causal"], q_len=7)
    inputs = random_inputs(elaborate(read_spec(case.spec)), case.lengths)
    for peer in QUICK_PEERS:
        if peer.available() is None and peer.name != "ort-gqa":
            with pytest.raises(CannotDoError, match="align"):
                peer.prepare(case, inputs, 1)


def test_inputs_are_the_same_for_the_same_seed() -> None:
    case = CASES["full"]
    ir = elaborate(read_spec(case.spec))
    one, two, other = (random_inputs(ir, case.lengths, seed) for seed in (1, 1, 2))
    assert isinstance(one, CoreInputs)
    assert isinstance(two, CoreInputs)
    assert isinstance(other, CoreInputs)
    assert np.array_equal(one.q, two.q)
    assert not np.array_equal(one.q, other.q)
