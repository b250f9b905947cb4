"""Sweeps: what a spec's ``sweep`` says to measure, measured one point at a time and kept.

A plan (:mod:`attngen.spec.sweep`) becomes points (``points``); the possible ones become jobs, which
``batch`` compiles in parallel processes and measures in one of their own, on this machine or on the
workers of a Dask cluster (``engines``, ``cluster``). Results go to a series on disk (``series``)
line by line, and to a :class:`~attngen.sweeps.table.Table`. The way in is :func:`attngen.sweep`
(``run``).
"""
