"""The benchmark: our kernels and what a user would pick instead, alternating in one process.

`suites` names the work, `peers` who can do it, `measure` takes turns and times, `report` prints.
The suites `start` and `memory` measure whole processes instead (`processes`).
"""
