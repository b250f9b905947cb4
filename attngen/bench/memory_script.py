"""Run as a script: make one call and print, as JSON, how far memory rose above what stood before.

Argument: a JSON object with the peer's name, the case, a smaller case that compiles and loads
everything beforehand, and the number of threads. Linux only: the kernel's own high-water mark is
reset just before the call.
"""

from __future__ import annotations

import json
import sys

from attngen.bench.cases import Case
from attngen.bench.high_water import measure_rise
from attngen.bench.peers import CannotDoError, Ours, Peer, Prepared, all_peers
from attngen.driver import run_stages
from attngen.inputs import random_inputs


def _prepare(peer: Peer, case: Case, threads: int) -> Prepared:
    return peer.prepare(case, random_inputs(run_stages(case.spec).ir, case.lengths), threads)


def measure(request: dict[str, object]) -> dict[str, object]:
    """Bytes of the peak beyond inputs and outputs, or the reason why there are none."""
    peers = {peer.name: peer for peer in (Ours(), *all_peers())}
    peer = peers[str(request["peer"])]
    threads = int(str(request["threads"]))
    case, small = (Case(**request[key]) for key in ("case", "small"))  # type: ignore[arg-type]
    if reason := peer.available():
        return {"bytes": None, "reason": reason}
    try:
        _prepare(peer, small, threads).call()
        prepared = _prepare(peer, case, threads)
    except CannotDoError as error:
        return {"bytes": None, "reason": str(error)}
    result, peak = measure_rise(prepared.call)
    if prepared.allocates_result:
        peak -= prepared.to_numpy(result).nbytes
    return {"bytes": max(0, peak), "reason": None}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))  # noqa: T201 - the answer to the parent
