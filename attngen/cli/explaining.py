"""``explain``: what a compilation promises, how it computes, and how long that should take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attngen.cli.mapping import read_arrays, say_map
from attngen.cli.options import (
    ArchOption,
    BatchOption,
    JsonOption,
    KvLenOption,
    QLenOption,
    ScheduleOption,
    SpecArgument,
    TargetOption,
    ThreadsOption,
    chosen_target,
    parse_overrides,
    use_threads,
)
from attngen.cli.output import say, say_json, text_width
from attngen.cli.picturing import draw_dataflow_to, draw_heads_to

if TYPE_CHECKING:
    from attngen.explain import ExplainReport


def explain_command(
    spec: SpecArgument,
    q_len: QLenOption = None,
    kv_len: KvLenOption = None,
    batch: BatchOption = 1,
    threads: ThreadsOption = None,
    target: TargetOption = "cpu",
    arch: ArchOption = None,
    schedule: ScheduleOption = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also compile, run and time it at these lengths.")
    ] = False,
    mask: Annotated[
        bool,
        typer.Option(
            "--mask", help="Instead: the map of tiles that the mask empties, fills or cuts."
        ),
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg",
            metavar="FILE",
            help="Instead: draw the dataflow of the spec to an .svg file.",
            show_default=False,
        ),
    ] = None,
    language: Annotated[
        Literal["en", "zh"], typer.Option("--lang", help="The language of --svg.")
    ] = "en",
    heads: Annotated[
        bool, typer.Option("--heads", help="Instead: draw what each head attends to.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="With --mask or --heads: the .png or .svg file to draw to.",
            show_default=False,
        ),
    ] = None,
    side_inputs: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="An .npz file of side inputs that the mask reads (without it, an example); with "
            "--heads also of q and k, or x, w_q and w_k.",
            show_default=False,
        ),
    ] = None,
    batch_index: Annotated[
        int, typer.Option(min=0, metavar="N", help="With --mask: the batch element to show.")
    ] = 0,
    kv_head: Annotated[
        int, typer.Option(min=0, metavar="N", help="With --mask: the key and value head to show.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Explain a spec: numeric contract, schedule with reasons, work, and predicted time."""
    from attngen.backends.numba_cpu.probe import probe
    from attngen.cache import Cache
    from attngen.costs import Lengths
    from attngen.driver import cached_package, run_stages
    from attngen.explain import DEFAULT_LENGTH, explain, machine_speeds
    from attngen.machine import machine_figures
    from attngen.targets import CudaTarget

    overrides, chosen = parse_overrides(schedule, target), chosen_target(target, arch)
    stages = run_stages(spec, target=chosen, overrides=overrides)
    if svg is not None:
        draw_dataflow_to(stages, svg, language)
    if heads:
        draw_heads_to(stages, output, side_inputs)
    if svg is not None or heads:
        return
    queries = DEFAULT_LENGTH if q_len is None else q_len
    lengths = Lengths(queries, queries if kv_len is None else kv_len, batch)
    arrays = None if side_inputs is None else read_arrays(side_inputs)
    if chosen is not None and (mask or measure):
        option = "--mask" if mask else "--measure"
        raise typer.BadParameter("it is about the CPU's kernels", param_hint=f"'{option}'")
    if mask:
        from attngen.tile_maps import tile_map

        workers = threads or probe().cores
        tiles = tile_map(stages, queries, lengths.kv_len, batch, inputs=arrays, workers=workers)
        say_map(tiles, output, batch_index, kv_head, as_json=as_json)
        return
    if output is not None:
        message = "only what --mask and --heads show is drawn"
        raise typer.BadParameter(message, param_hint="'--output'")
    if isinstance(chosen, CudaTarget):
        folder = cached_package(stages, Cache())
        figures = machine_figures(folder, chosen).lines(chosen)
        report = explain(stages, lengths, inputs=arrays, machine=figures)
        say_report(report, as_json=as_json)
        return
    count = use_threads(threads)
    measured = None
    if measure:
        from attngen.trial import run_trial

        trial = run_trial(spec, lengths, overrides=overrides, threads=count)
        measured = trial.timing.median
    report = explain(
        stages,
        lengths,
        inputs=arrays,
        speeds=machine_speeds(count, stages.ir.dtype),
        measured=measured,
    )
    say_report(report, as_json=as_json)


def say_report(report: ExplainReport, *, as_json: bool) -> None:
    """Print a report, for programs or for people."""
    if as_json:
        say_json(report.to_json())
    else:
        say(report.to_text(max(60, text_width())))
