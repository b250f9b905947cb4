"""The arguments and options that several commands share, each defined once."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from attngen.spec.model import ScheduleOverride
    from attngen.targets import Target

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="A YAML file, or the name of a spec on the search path (see 'attngen specs').",
        show_default=False,
    ),
]
ScheduleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="KEY=VALUE",
        help="Override a decision of the schedule, such as block_q=96; may be repeated.",
        show_default=False,
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A key of the spec, such as head_dim=64 or window.left=255; may be repeated.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value for programs.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        help="Threads to run on; all by default.",
        show_default=False,
    ),
]
QLenOption = Annotated[
    int | None,
    typer.Option(
        "--q-len",
        "--seq",
        min=0,
        metavar="N",
        help="Queries; 2048 by default.",
        show_default=False,
    ),
]
KvLenOption = Annotated[
    int | None,
    typer.Option(
        "--kv-len",
        min=0,
        metavar="N",
        help="Keys; as many as queries by default.",
        show_default=False,
    ),
]
BatchOption = Annotated[int, typer.Option("--batch", min=0, metavar="N", help="Batch size.")]


TargetOption = Annotated[
    Literal["cpu", "cuda"], typer.Option("--target", help="What to compile for.")
]
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="ARCH",
        help="With --target cuda: the GPU, such as sm_80 or sm_90a; by default the one here.",
        show_default=False,
    ),
]


def chosen_target(target: str, arch: str | None) -> Target | None:
    """The target that ``--target`` and ``--arch`` name; None is this machine's CPU.

    Raises:
        typer.BadParameter: no kernels are made for the architecture.
        TargetError: no architecture is given, and there is no GPU here.
    """
    from attngen.targets import CUDA_TARGETS

    if target == "cpu":
        if arch is not None:
            raise typer.BadParameter("it goes with --target cuda", param_hint="'--arch'")
        return None
    if arch is None:
        from attngen.backends.numba_cuda.probe import probe

        return probe()
    if arch not in CUDA_TARGETS:
        raise typer.BadParameter(
            f"{arch!r} is not one of {', '.join(CUDA_TARGETS)}", param_hint="'--arch'"
        )
    return CUDA_TARGETS[arch]


def parse_overrides(
    texts: list[str] | None, target: Literal["cpu", "cuda"] = "cpu"
) -> tuple[ScheduleOverride, ...]:
    """``--schedule`` values as overrides of the schedule for `target`.

    Raises:
        typer.BadParameter: a text is not ``key=value``, or there is no such decision.
    """
    from attngen.ir.schedule import SCHEDULES
    from attngen.spec.model import ScheduleOverride

    known = [field.name for field in fields(SCHEDULES[target])]
    overrides = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="'--schedule'")
        word = value.strip()
        number = int(word) if re.fullmatch(r"-?\d+", word) else word
        name = name.strip().removeprefix(f"{target}.")
        if name not in known:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(known)}", param_hint="'--schedule'"
            )
        overrides.append(ScheduleOverride(target, name, number, source="call"))
    return tuple(overrides)


def use_threads(count: int | None) -> int:
    """Let this thread's kernels use `count` threads (None: as many as Numba offers).

    Raises:
        typer.BadParameter: more threads than Numba was started with.
    """
    import numba
    from numba.core import config

    from attngen.backends.numba_cpu import threads

    threads.prepare()
    settings: Any = config
    most = int(settings.NUMBA_NUM_THREADS)
    if count is not None and count > most:
        raise typer.BadParameter(
            f"{count} is more than the {most} threads Numba has here (NUMBA_NUM_THREADS)",
            param_hint="'--threads'",
        )
    if count is not None:
        numba.set_num_threads(count)
    return int(numba.get_num_threads())
