"""A process that compiles or measures: requests on stdin, answers on stdout, a JSON line each.

A request to compile is answered and the next one waited for; one to measure first pins the process
to as many cores as the points have threads. Whatever libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from typing import Any, TextIO

from attngen.errors import AttngenError
from attngen.sweeps.pinning import pin_to_cores


def main() -> None:
    """Serve requests until stdin ends, as it does when the parent dies."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        _answer(answers, _serve(json.loads(requests.get())))


def _listen(requests: queue.SimpleQueue[str]) -> None:
    """Hand requests on; end the process with its parent, whatever is being measured."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    if request["task"] == "measure":
        pin_to_cores(request["jobs"][0]["point"]["call"]["threads"])
    from attngen.sweeps import jobs, measure  # NumPy starts threads when it is imported

    asked = [jobs.job_from_json(job) for job in request["jobs"]]
    if request["task"] == "measure":
        options = jobs.options_from_json(request["options"])
        speeds = jobs.speeds_from_json(request["speeds"])
        results, speeds = measure.measure_points(asked, options, speeds)
        return {"results": results, "speeds": asdict(speeds)}
    try:
        return measure.compile_point(asked[0])
    except AttngenError as error:
        return {"reason": str(error)}
    except Exception as error:  # noqa: BLE001 - it goes into the point's result
        return {"reason": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
