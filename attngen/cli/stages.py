"""What each stage of the compiler made, as text."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, assert_never

from attngen.ir.printer import attention_text, expression_text, kernel_text, schedule_text

if TYPE_CHECKING:
    from attngen.cli.compiling import Stage
    from attngen.driver import Stages
    from attngen.ir.kernel import SourcePackage
    from attngen.spec.model import Spec


def product_text(stages: Stages, stage: Stage) -> str:
    """The product of `stage` for a reader."""
    match stage:
        case "read":
            return _spec_text(stages.spec)
        case "elaborate":
            return attention_text(stages.ir)
        case "simplify":
            return attention_text(stages.simplified)
        case "schedule":
            return schedule_text(stages.schedule)
        case "lower":
            return kernel_text(stages.kernel)
        case "emit":
            return _package_text(stages.package)
        case _:
            assert_never(stage)


def _spec_text(spec: Spec) -> str:
    """Every key of the spec; what was not given says so, because elaboration fills it in."""
    rows = {field.name: getattr(spec, field.name) for field in fields(spec)}
    rows["dtype"] = spec.dtype.name
    rows["outputs"] = ", ".join(spec.outputs)
    rows["window"] = spec.window and f"left {spec.window.left}, right {spec.window.right}"
    for name, expression in (("score", spec.score), ("mask", spec.mask)):
        rows[name] = expression and expression_text(expression)
    rows["inputs"] = ", ".join(f"{i.name} {i.dtype} {list(i.shape)}" for i in spec.inputs)
    rows["parameters"] = ", ".join(f"{name}={value}" for name, value in spec.parameters)
    rows["description"] = " ".join(spec.description.split())
    rows["schedule"] = ", ".join(f"{o.target}.{o.name}={o.value}" for o in spec.schedule)
    width = max(map(len, rows))
    return "\n".join(
        f"{name:<{width}}  {'(not given)' if value in (None, '') else value}"
        for name, value in rows.items()
    )


def _package_text(package: SourcePackage) -> str:
    """Every file, each under a comment with its path, so that the whole is still Python."""
    return "\n\n".join(
        f"# {'=' * 8} {package.name}/{file.path} {'=' * 8}\n{file.text.rstrip()}"
        for file in package.files
    )
