"""Jobs, options and speeds as JSON, on their way to other processes and machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from attngen.explain import Speeds
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Call, Job, Point


def job_to_json(job: Job) -> dict[str, Any]:
    """`job` as plain data."""
    return asdict(job)


def job_from_json(data: dict[str, Any]) -> Job:
    """What :func:`job_to_json` was given."""
    point = data["point"]
    return Job(**{**data, "point": Point(**{**point, "call": Call(**point["call"])})})


def options_from_json(data: dict[str, Any]) -> Options:
    """Options from their fields."""
    return Options(**{**data, "peers": tuple(data["peers"])})


def speeds_from_json(data: dict[str, Any] | None) -> Speeds | None:
    """Speeds from their fields."""
    return None if data is None else Speeds(**data)
