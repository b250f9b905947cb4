"""``cache list|verify|clear|why``: the folder in which compiled kernels are kept."""

from __future__ import annotations

from typing import Any

import typer

from attngen.cli.options import JsonOption, ScheduleOption, SpecArgument, parse_overrides
from attngen.cli.output import say, say_json, say_rows


def app() -> typer.Typer:
    """The commands of the group."""
    group = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Look after the cache of kernels."
    )
    group.command("list")(list_command)
    group.command("verify")(verify_command)
    group.command("clear")(clear_command)
    group.command("why")(why_command)
    return group


def list_command(as_json: JsonOption = False) -> None:
    """List the kernels in the cache."""
    from attngen.cache import Cache
    from attngen.formatting import bytes_text

    cache = Cache()
    entries = cache.entries()
    sizes = [sum(p.lstat().st_size for p in e.path.rglob("*") if p.is_file()) for e in entries]
    if as_json:
        say_json(
            {
                "folder": str(cache.folder) if cache.folder else None,
                "entries": [
                    {
                        "name": entry.key.name,
                        "folder": str(entry.path),
                        "bytes": size,
                        "key": dict(entry.key.fields),
                    }
                    for entry, size in zip(entries, sizes, strict=True)
                ],
            }
        )
        return
    rows = [(e.path.name, bytes_text(n)) for e, n in zip(entries, sizes, strict=True)]
    say_rows([*rows, (f"{len(rows)} in {cache.folder}", bytes_text(sum(sizes)))], indent="")


def verify_command(as_json: JsonOption = False) -> None:
    """Check every kernel in the cache and remove the damaged ones."""
    from attngen.cache import Cache

    cache = Cache()
    findings = cache.verify()
    if as_json:
        say_json([{**_finding(finding)} for finding in findings])
    else:
        for finding in findings:
            done = "removed" if finding.removed else "could NOT be removed"
            say(f"{finding.path}: {finding.problem}; {done}")
        say(f"{len(cache.entries())} kernels are whole; {len(findings)} were damaged")
    if any(not finding.removed for finding in findings):
        raise typer.Exit(1)


def _finding(finding: Any) -> dict[str, object]:
    return {"path": str(finding.path), "problem": finding.problem, "removed": finding.removed}


def clear_command(as_json: JsonOption = False) -> None:
    """Remove every kernel from the cache."""
    from attngen.cache import Cache

    cache = Cache()
    count = cache.clear()
    if as_json:
        say_json({"removed": count})
    else:
        say(f"removed {count} kernels from {cache.folder}")


def why_command(
    spec: SpecArgument, schedule: ScheduleOption = None, as_json: JsonOption = False
) -> None:
    """Say whether a spec's kernels are in the cache, and if not, what differs from the nearest."""
    from attngen import driver
    from attngen.cache import Cache

    stages = driver.run_stages(spec, overrides=parse_overrides(schedule))
    cache = Cache()
    key = stages.key
    difference = cache.why(key)
    nearest = difference.nearest
    if as_json:
        say_json(
            {
                "hit": difference.is_hit,
                "key": key.folder_name,
                "nearest": nearest.path.name if nearest else None,
                "changes": [
                    {"field": change.field, "old": change.old, "new": change.new}
                    for change in difference.changes
                ],
            }
        )
    elif nearest is None:
        say(f"{key.folder_name} is not in the cache, and nothing else is: {cache.folder}")
    elif difference.is_hit:
        say(f"{key.folder_name} is in the cache: {nearest.path}")
    else:
        say(f"{key.folder_name} is not in the cache; from {nearest.path.name} it differs in")
        for change in difference.changes:
            say(f"  {change.summary}")
