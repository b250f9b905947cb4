"""The whole compiler on one page: from a spec to a callable, stage by stage.

    read       YAML -> Spec                      every mistake at once, each at its place
    elaborate  Spec -> AttentionIR               defaults, score and mask as expressions
    simplify   AttentionIR -> AttentionIR        base 2, constants folded, scale in q
    schedule   AttentionIR × target -> Schedule  every decision with its source and reason
    lower      AttentionIR × Schedule -> KernelIR
    emit       KernelIR -> source package        one template a kernel
    publish    source package -> cache folder    atomic, content-addressed
    load       cache folder -> the callable

What each stage makes is a frozen value that can be printed (``attngen show SPEC --stage …``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from attngen import attention, lowering, passes
from attngen.backends import dispatch
from attngen.backends.numba_cpu.probe import probe
from attngen.cache import Cache, CacheKey, compiler_digest, key_for
from attngen.dense_mask import MaskKind, with_dense_mask
from attngen.errors import TargetError
from attngen.fingerprint import text_digest
from attngen.interpreter import CoreInterpreter, Interpreter, LayerInterpreter
from attngen.ir.attention import AttentionIR
from attngen.ir.kernel import KernelIR, SourcePackage
from attngen.ir.schedule import CpuSchedule, Schedule
from attngen.ir.verify import verify_attention, verify_kernel
from attngen.resources import templates_dir
from attngen.spec.elaborate import elaborate
from attngen.spec.model import ScheduleOverride, Spec
from attngen.spec.reader import read_spec
from attngen.targets import Target

Source: TypeAlias = "str | Path | Mapping[str, Any] | Spec"

STAGES = ("read", "elaborate", "simplify", "schedule", "lower", "emit")


@dataclass(frozen=True)
class Stages:
    """The product of each stage, made when it is first asked for and verified where it is made."""

    spec: Spec
    target: Target
    overrides: tuple[ScheduleOverride, ...] = ()
    mask_array: MaskKind | None = None

    @cached_property
    def ir(self) -> AttentionIR:
        """What is computed, with every default filled in."""
        ir = elaborate(self.spec)
        if self.mask_array:
            ir = with_dense_mask(ir, self.mask_array)
        verify_attention(ir)
        return ir

    @cached_property
    def simplified(self) -> AttentionIR:
        """The same in the form that kernels compute."""
        ir = passes.simplify(self.ir)
        verify_attention(ir)
        return ir

    @cached_property
    def schedule(self) -> Schedule:
        """How it is computed on the target."""
        overrides = (*self.spec.schedule, *self.overrides)
        return dispatch.propose(self.simplified, self.target, overrides)

    @cached_property
    def kernel(self) -> KernelIR:
        """What × how."""
        kernel = lowering.lower(self.simplified, self.schedule)
        verify_kernel(kernel)
        return kernel

    @cached_property
    def package(self) -> SourcePackage:
        """The generated source."""
        return dispatch.emit(self.kernel, self.schedule, self.target)

    @cached_property
    def key(self) -> CacheKey:
        """Everything that shapes the source and the machine code."""
        return key_for(self.simplified, self.schedule, self.target, _templates_digest())


def run_stages(
    source: Source,
    *,
    target: Target | None = None,
    overrides: tuple[ScheduleOverride, ...] = (),
) -> Stages:
    """The stages of compiling `source` for `target` (this machine if None).

    Raises:
        SpecError: the spec has mistakes; all of them are reported.
    """
    spec = source if isinstance(source, Spec) else read_spec(source)
    return Stages(spec, probe() if target is None else target, overrides)


def compile_spec(
    source: Source,
    *,
    schedule: Mapping[str, int | str] | None = None,
    overrides: tuple[ScheduleOverride, ...] = (),
    cache: Cache | None = None,
) -> attention.Attention:
    """Compile a spec for this machine and hand out its callable.

    Args:
        source: a YAML file, the name of a spec on the search path, a mapping, or a Spec.
        schedule: decisions that win over the spec's, by name, such as ``{"block_q": 96}``.
        overrides: the same as values that know their place in a text.
        cache: where generated code is kept; the user's cache folder if None.

    Raises:
        SpecError: the spec or an override has mistakes; all of them are reported.
    """
    given = (schedule or {}).items()
    chosen = tuple(ScheduleOverride("cpu", name, value, source="call") for name, value in given)
    stages = run_stages(source, overrides=(*overrides, *chosen))
    return _compile(stages, Cache() if cache is None else cache)


def interpret(source: Source) -> Interpreter:
    """The float64 reference of a spec as a callable, with no compiler behind it.

    It takes what the compiled callable takes (but for packed sequences and `out`) and returns what
    the spec's `outputs` list, logits and probabilities of all pairs among them.

    Args:
        source: as for :func:`compile_spec`.

    Raises:
        SpecError: the spec has mistakes; all of them are reported.
    """
    spec = source if isinstance(source, Spec) else read_spec(source)
    ir = elaborate(spec)
    verify_attention(ir)
    return CoreInterpreter(spec, ir) if ir.scope == "core" else LayerInterpreter(spec, ir)


def _compile(stages: Stages, cache: Cache) -> attention.Attention:
    from attngen import loader

    schedule = stages.schedule
    if not isinstance(schedule, CpuSchedule):
        raise TargetError(
            "callables run on the CPU; write a package for CUDA and call its attend()"
        )
    folder = cached_package(stages, cache)
    return attention.make(
        attention.Compiled(
            spec=stages.spec,
            ir=stages.simplified,
            schedule=schedule,
            package=loader.load(folder),
            folder=folder,
            explain=lambda: _explain(stages),
            recipe=(_recompile, (stages.spec, stages.overrides)),
            with_mask=lambda kind: _compile(replace(stages, mask_array=kind), cache),
        )
    )


def cached_package(stages: Stages, cache: Cache) -> Path:
    """The folder in `cache` that holds the package of `stages`, for any target.

    Raises:
        CacheError: neither the cache nor a temporary folder can be written.
    """
    return cache.find(stages.key) or cache.publish(stages.key, stages.package)


def write_package(
    source: Source,
    folder: Path,
    *,
    target: Target | None = None,
    overrides: tuple[ScheduleOverride, ...] = (),
) -> Path:
    """Write the generated package for `source` below `folder`; it does not need attngen.

    Files that hold the right text already are left alone, and so is every other file there.

    Raises:
        SpecError: the spec or an override has mistakes.
        OSError: `folder` cannot be written.
    """
    package = run_stages(source, target=target, overrides=overrides).package
    home = folder / package.name
    home.mkdir(parents=True, exist_ok=True)
    for file in package.files:
        path = home / file.path
        if not path.is_file() or path.read_bytes() != file.text.encode():
            path.write_text(file.text, encoding="utf-8", newline="\n")
    return home


def _recompile(spec: Spec, overrides: tuple[ScheduleOverride, ...]) -> attention.Attention:
    return compile_spec(spec, overrides=overrides)


def _explain(stages: Stages) -> str:
    from attngen.explain import explain

    return explain(stages).to_text()


def source_digest() -> str:
    """Digest of all that makes kernels: templates and attngen's own source."""
    return text_digest(compiler_digest() + _templates_digest())


def _templates_digest() -> str:
    """Digest of all templates for kernels: editing one makes new entries."""
    folder = templates_dir()
    paths = sorted(folder.glob("numba_*/**/*.jinja"))
    parts = (f"{p.relative_to(folder).as_posix()}\0{p.read_text('utf-8')}\0" for p in paths)
    return text_digest("".join(parts))
