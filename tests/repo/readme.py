"""The parts of the README that are made from the code, by the name in their markers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from repo.generated import SHIPPED, TARGETS, stages

from attngen.cli.app import command
from attngen.contract import contract
from attngen.driver import run_stages
from attngen.errors import SpecError
from attngen.ir.printer import attention_text, kernel_text
from attngen.spec.axes import CALL_KEYS, GROUP_DOCS
from attngen.spec.elaborate import elaborate
from attngen.spec.field_kinds import Axes, Named, Section
from attngen.spec.fields import SPEC
from attngen.spec.model import ScheduleOverride
from attngen.spec.reader import read_spec
from attngen.tile_maps import tile_map

ISA = "avx512"
MISTAKES = """\
heads: 32
kv_heads: 6
head_dims: 128
causal: yes
"""


def simplify() -> str:
    shown = attention_text(stages("mha_4096", ISA).simplified)
    return _block("console", f"$ attngen show mha_4096 --stage simplify\n{shown}")


def schedule() -> str:
    wanted = ("tile_scalars", "block_q", "block_kv", "split_kv", "gemm_block_k")
    decisions = dict(stages("mha_4096", ISA).schedule.decisions())
    lines = (
        f"{n} = {decisions[n].value} ({decisions[n].source}): {decisions[n].why}" for n in wanted
    )
    return _block("text", "\n".join(lines))


def lower() -> str:
    lines = kernel_text(stages("window", ISA).kernel).splitlines()
    full = next(i for i, line in enumerate(lines) if line.strip().startswith("full tile"))
    forms = "\n".join(lines[full - 1 : full + 4])
    return _block("console", f"$ attngen show window --stage lower\n…\n{forms}\n…")


def tiles() -> str:
    shown = tile_map(stages("window", ISA), 600).to_text(80)
    return _block("console", f"$ attngen explain window --mask --seq 600\n{shown}")


def emit() -> str:
    small = tuple(
        ScheduleOverride("cpu", name, 2, "call") for name in ("tile_scalars", "tile_vectors")
    )
    printed = run_stages("mha_4096", target=TARGETS[ISA], overrides=small).package
    text = next(file.text for file in printed.files if file.path == "flash_forward.py")
    found = next(
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == "score_tile"
    )
    code = "\n".join(text.splitlines()[found.lineno - 1 : found.end_lineno])
    shown = "attngen show mha_4096 --stage emit --schedule tile_scalars=2 --schedule tile_vectors=2"
    return _block("py", f"# {shown}\n{code}")


def errors() -> str:
    path = Path("mine.yaml")
    path.write_text(MISTAKES, encoding="utf-8")
    try:
        read_spec(path)
    except SpecError as error:
        return _block("text", str(error))
    raise AssertionError("these mistakes are none")


def keys() -> str:
    return _table(("key", "meaning", "without it"), _keys(SPEC, ""))


def _keys(section: Section, prefix: str) -> Iterator[tuple[str, str, str]]:
    for field in section.fields:
        name, kind = f"{prefix}{field.name}", field.kind
        yield f"`{name}`", field.doc, field.default.partition(";")[0]
        if isinstance(kind, Named):
            name, kind = f"{name}.NAME", kind.item.kind
        if isinstance(kind, Section):
            yield from _keys(kind, f"{name}.")
        if isinstance(kind, Axes):
            yield from _sweep(kind)


def _sweep(kind: Axes) -> Iterator[tuple[str, str, str]]:
    """Beside the spec's own keys, which are above: what only a sweep has."""
    for field in kind.fields:
        if field.name in CALL_KEYS:
            yield f"`sweep.{field.name}`", field.doc, field.default
    for name, doc in GROUP_DOCS.items():
        yield f"`sweep.{name}`", doc, ""


def gallery() -> str:
    rows = []
    for spec in SHIPPED:
        ir = elaborate(read_spec(spec))
        heads = str(ir.heads) if ir.kv_heads == ir.heads else f"{ir.heads} / {ir.kv_heads}"
        size = (
            str(ir.head_dim) if ir.value_dim == ir.head_dim else f"{ir.head_dim} / {ir.value_dim}"
        )
        rows.append((f"`{spec}`", str(ir.d_model or "core"), heads, size, ir.description))
    return _table(("name", "d_model", "heads", "head_dim", "what it is"), rows)


def contract_lines() -> str:
    ir = stages("gpt_oss_20b_global", ISA).simplified
    return "".join(f"- {line}\n" for line in contract(ir))


def commands() -> str:
    rows = [
        (f"`attngen {name}`", c.get_short_help_str(200)) for name, c in command().commands.items()
    ]
    return _table(("command", "what it does"), rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "simplify": simplify,
    "schedule": schedule,
    "lower": lower,
    "map": tiles,
    "emit": emit,
    "errors": errors,
    "keys": keys,
    "gallery": gallery,
    "contract": contract_lines,
    "commands": commands,
}


def section(text: str, name: str) -> str:
    """The part of `text` between the markers of `name`."""
    return _find(text, name)[2]


def with_section(text: str, name: str, content: str) -> str:
    """`text` with that part replaced."""
    found = _find(text, name)
    return text[: found.start(2)] + content + text[found.end(2) :]


def _find(text: str, name: str) -> re.Match[str]:
    pattern = rf"(<!-- begin {name} -->\n)(.*?)(?=<!-- end {name} -->)"
    found = re.search(pattern, text, re.DOTALL)
    assert found, f"the README has no part called {name}"
    return found


def _block(language: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return f"```{language}\n{lines}\n```\n"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    escaped = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in escaped)
