"""The expression language: what it takes, what it refuses and where, and that it runs nothing."""

from __future__ import annotations

import ast
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attngen.errors import SpecError
from attngen.ir.attention import SideInput
from attngen.ir.kinds import kind_of
from attngen.ir.printer import expression_text
from attngen.spec.alibi import alibi_slopes
from attngen.spec.elaborate import elaborate
from attngen.spec.expressions import Parsed, parse
from attngen.spec.lexical import MAX_LENGTH
from attngen.spec.reader import read_spec
from attngen.spec.vocabulary import ALL_FUNCTIONS, VARIABLES, Scope

INPUTS = {
    "doc": SideInput("doc", ("batch", "kv_len"), "int64"),
    "slope": SideInput("slope", ("heads",), "float"),
    "real": SideInput("real", ("batch", "kv_len"), "bool"),
}
PARAMETERS: dict[str, int | float] = {"size": 512, "eps": 0.5}
MASK = Scope("mask", "truth", False, INPUTS, PARAMETERS)
SCORE = Scope("score", "number", True, INPUTS, PARAMETERS)


def parsed(text: str) -> Parsed:
    """As a score or as a mask, whichever it is meant for."""
    score = parse(text, SCORE)
    return parse(text, MASK) if score.expr is None else score


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<=q", "k <= q"),
        ("(k <= q) and (q - k < size or k < 4)", "k <= q and (q - k < 512 or k < 4)"),
        ("0 <= q - k < size", "0 <= q - k and q - k < 512"),
        ("k < 1 < q < 7", "k < 1 and 1 < q and q < 7"),
        ("doc[b, q] == doc[b, k]", "doc[b, q] == doc[b, k]"),
        ("not real[b, k] or k == q != h", "not real[b, k] or k == q and q != h"),
        ("k <= q if h < 4 else q <= k", "k <= q if h < 4 else q <= k"),
        ("(k < 3) == real[b, k]", "(k < 3) == real[b, k]"),
        ("True and k < q", "True and k < q"),
        ("q // 64 == k // 64", "q // 64 == k // 64"),
        ("(q - k) % 3 == 0", "(q - k) % 3 == 0"),
        ("k // max(doc[b, k], 1) < 3", "k // max(doc[b, k], 1) < 3"),
        ("score + slope[h] * (k - q)", "dot + slope[h] * (k - q)"),
        ("+score - -q", "dot - -q"),
        ("-3 * score", "-3 * dot"),
        ("min(score, 1, k, eps)", "min(min(min(dot, 1), k), 0.5)"),
        ("int(score) // 2 + float(k < q)", "int(dot) // 2 + float(k < q)"),
        ("score / (1 + abs(q - k))", "dot / (1 + abs(q - k))"),
        ("1e-3 * score + .5 + 2.", "0.001 * dot + 0.5 + 2.0"),
        ("0 if k < q else score if k == q else eps", "0 if k < q else dot if k == q else 0.5"),
        (" score\n\t+ 1 ", "dot + 1"),
        *((f"{f}(score)", f"{f}(dot)") for f in ALL_FUNCTIONS if f not in ("min", "max")),
    ],
)
def test_what_the_language_takes(text: str, expected: str) -> None:
    found = parsed(text)
    assert found.expr is not None, found.mistakes
    assert expression_text(found.expr) == expected


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_is_a_whole_number(name: str) -> None:
    found = parse(name, SCORE).expr
    assert found is not None
    assert kind_of(found) == "integer"


REFUSED = [  # text, what is said, the part of the text that it points at
    ("k ** 2 < 3", "has **", "**"),
    ("q_idx >= k", "reads 'q_idx', which is not defined", "q_idx"),
    ("doc[b] == 1", "gives 'doc' 1 index for 2 axes", "doc[b]"),
    ("doc[b, q, k] == 1", "gives 'doc' 3 indices", "doc[b, q, k]"),
    ("doc[b, 0.5] == 1", "has a real number as an index", "0.5"),
    ("doc[b, k < q] == 1", "has a truth value as an index", "k < q"),
    ("doc == 1", "reads 'doc' without an index", "doc"),
    ("doc(b, k) == 1", "calls 'doc', which is no function", "doc"),
    ("slope[h:] < 1", "has :", ":"),
    ("q[0] < 1", "takes an element of 'q', which is no side input", "q"),
    ("max(q, k)[0] < 1", "takes an element of a value", "max(q, k)"),
    ("min(q) < 3", "gives 'min' 1, which takes two or more arguments", "min(q)"),
    ("exp(q, k) < 3", "gives 'exp' 2, which takes one argument", "exp(q, k)"),
    ("abs() < 3", "gives 'abs' 0", "abs()"),
    ("abs < 3", "reads the function 'abs'", "abs"),
    ("math.sqrt(k) > 1", "has .", "."),
    ("q.real < 1", "has .", "."),
    ("[x for x in q]", "has the word for", "for"),
    ("(lambda: 1)() < 2", "has the word lambda", "lambda"),
    ("k in q", "has the word in", "in"),
    ("k is q", "has the word is", "is"),
    ("await k < q", "has the word await", "await"),
    ("None", "has the word None", "None"),
    ("(y := k) < q", "has :=", ":="),
    ("k = q", "has =", "="),
    ("k < q; k", "has ;", ";"),
    ("k < q # all", "has #", "#"),
    ("k < 'q'", "has a text in quotes", "'q'"),
    ("f'{k}' < q", "has a text in quotes", "'{k}'"),
    ("{k} < q", "has {", "{"),
    ("k @ q < 1", "has @", "@"),
    ("k & q < 1", "has &", "&"),
    ("k << q < 1", "has <<", "<<"),
    ("~k < 1", "has ~", "~"),
    ("!real[b, k]", "has !", "!"),
    ("k \N{LESS-THAN OR EQUAL TO} q", "has \N{LESS-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}"),
    ("\uff4b < q", "has \uff4b", "\uff4b"),  # Python would read it as k
    ("k < q \x00", "has U+0000", "\x00"),
    ("k < 1_000", "has 1_000, which is no number", "1_000"),
    ("k < 0x10", "has 0x10, which is no number", "0x10"),
    ("k < 1j", "has 1j, which is no number", "1j"),
    ("k < 1if q else 2", "has 1if, which is no number", "1if"),
    ("k < 010", "has the number 010", "010"),
    ("k < 1.2.3", "has 1.2.3, which is no number", "1.2.3"),
    ("k < 1e400", "has a number beyond the range", "1e400"),
    ("k < 4611686018427387904", "has a whole number beyond 2**62", "4611686018427387904"),
    ("q * k * k < 1", "may be a whole number beyond 64 bits", "q * k * k"),
    ("k // 0 < 1", "divides by zero", "k // 0"),
    ("k / 0 < 1", "divides by zero", "k / 0"),
    ("k % (1 - 1) < 1", "divides by zero", "k % (1 - 1)"),
    ("q % k == 0", "has a right side of '%' that may be zero", "q % k"),
    ("k // doc[b, k] < 1", "has a right side of '//' that may be zero", "k // doc[b, k]"),
    ("slope[h] // 2 < 1", "has a real number in '//', which takes whole numbers", "slope[h] // 2"),
    ("k + (q < 1) < 3", "has a truth value in '+', which takes numbers", "q < 1"),
    ("-(k < q) < 1", "has a truth value in a sign", "k < q"),
    ("tanh(k < q) < 1", "has a truth value in 'tanh'", "k < q"),
    ("k and q < 1", "has a whole number in 'and', which takes truth values", "k"),
    ("not k", "has a whole number in 'not'", "k"),
    ("(k < q) < 1", "has a truth value in '<', which compares numbers", "k < q"),
    ("1 < (k < q)", "has a truth value in '<'", "k < q"),
    ("k < q if 1 else q < k", "has a whole number in 'if'", "1"),
    ("k < q if k < 2 else 1", "chooses between a truth value and a whole number", None),
    ("k <= q, 3", "has a list", None),
    ("(k, q) < 1", "has a list", "(k, q)"),
    ("[k] < 1", "has a list", "[k]"),
    ("max(*slope) < 1", "has a star that unpacks", "*slope"),
    ("(k < q)(q) < 1", "calls something that is no function", "k < q"),
    ("(k <= q", "has a bracket that is never closed", "("),
    ("k <= q)", "has a ) that closes no bracket", ")"),
    ("k) + (q < 1", "has a ) that closes no bracket", ")"),
    ("(k] < q", "has a ] that closes no bracket", "]"),
    ("k <=", "cannot be read from here on", None),
    ("k q", "cannot be read from here on", None),
    ("k <= q if h < 2", "cannot be read from here on", None),
    ("k + 1", "is a whole number, and a mask is a truth value", "k + 1"),
    ("0.5", "is a real number, and a mask is a truth value", "0.5"),
    ("score < 1", "reads 'score', which a mask does not know", "score"),
    ("   ", "is empty", None),
    ("k" * (MAX_LENGTH + 1), f"is longer than {MAX_LENGTH} characters", None),
    ("(" * 50 + "k" + ")" * 50 + " < 1", "has more than 40 brackets in each other", "("),
    ("-" * 90 + "k < 1", "goes too deep", None),
    ("not " * 90 + "k < 1", "goes too deep", None),
    ("k < 1" + " + 1" * 450, "goes too deep", None),
]


@pytest.mark.parametrize(("text", "message", "part"), REFUSED, ids=[r[0][:30] for r in REFUSED])
def test_what_the_language_refuses(text: str, message: str, part: str | None) -> None:
    found = parse(text, MASK)
    assert found.expr is None
    assert message in found.mistakes[0].message
    first = found.mistakes[0]
    if part is not None:
        assert text[first.start : first.start + first.length] == part


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("q_idx >= kv_idx", "did you mean 'q'?"),
        ("sizes < k", "did you mean 'size'?"),
        ("zebra < k", f"the names are {', '.join(VARIABLES)}, size, eps, doc, slope, real"),
        ("docs[b, k] == 1", "did you mean 'doc'?"),
        ("doc < 1", "write doc[b, k]"),
        ("sqr(k) < 1", "did you mean 'sqrt'?"),
        ("relu(k) < 1", "write max(x, 0)"),
        ("where(k < q, 1, 2) < 1", "write a if condition else b"),
        ("k && q", "write and"),
        ("k + 1", "compare it, such as x != 0"),
        ("k <= q if h < 2", "a choice has both sides: a if condition else b"),
        ("q % k == 0", "write max(x, 1) for one that is positive"),
        ("k < 1_000", "write 1000"),
    ],
)
def test_hints_say_what_to_write(text: str, hint: str) -> None:
    assert parse(text, MASK).mistakes[0].hint == hint


def test_a_score_is_a_number() -> None:
    [mistake] = parse("k < q", SCORE).mistakes
    assert mistake.message == "is a truth value, and a score is a number"


def test_all_mistakes_of_an_expression_are_reported() -> None:
    found = parse("kk <= q and foo(q) < 1 and doc[q] == 2", MASK)
    assert [m.start for m in found.mistakes] == [0, 12, 27]


# ---------------------------------------------------------------- in a file

STYLES = {
    "plain": "mask: k <= qq",
    "single": "mask: 'k <= qq'",
    "double": 'mask: "k <= qq"',
    "flow": "{heads: 4, head_dim: 8, mask: k <= qq}",
    "plain over lines": "mask:\n  k <=\n\n    qq",
    "double over lines": 'mask: "k\n  <=\n  qq"',
    "folded": "mask: >-  # why\n  k <=\n\n   qq\n",
    "literal": "mask: |\n    k\n    <= qq\n",
    "indented": "mask: |2\n    k\n    <= qq\n",
    "anchored": "mask: &m k <= qq",
    "after other text": "description: 'é qq \U0001f600'\nmask: k <= qq",
}


@pytest.mark.parametrize("style", STYLES)
def test_errors_point_into_the_expression(style: str, tmp_path: Path) -> None:
    text = STYLES[style]
    text = text if style == "flow" else f"heads: 4\nhead_dim: 8\n{text}\n"
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    [found] = caught.value.diagnostics
    assert found.span is not None
    line = text.splitlines()[found.span.line - 1]
    assert line[found.span.column - 1 :].startswith("qq")
    assert (found.code, found.key, found.span.length) == ("E-EXPR", "mask", 2)


def test_where_the_place_cannot_be_told_it_is_that_of_the_value(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text('heads: 4\nhead_dim: 8\nmask: "k <= \\x71q"\n', encoding="utf-8")
    with pytest.raises(SpecError, match=r"spec\.yaml:3:7: error: 'mask' reads 'qq'"):
        read_spec(path)


def test_a_place_is_in_the_file_that_has_the_expression(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("heads: 4\nhead_dim: 8\n\nmask: k <= limit\n")
    (tmp_path / "mine.yaml").write_text("extends: ./base.yaml\ncausal: true\n")
    with pytest.raises(SpecError, match=r"base\.yaml:4:12: error: 'mask' reads 'limit'"):
        read_spec(tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_text("extends: ./base.yaml\nparameters: {limit: 3}\n")
    assert read_spec(tmp_path / "mine.yaml").parameters == (("limit", 3),)


# ---------------------------------------------------------------- nothing runs

_SAMPLES = """
score size eps x __import__ os eval exec open print lambda for in if else not and or None True
False yield await async import from is del class def return global + - * / // % ** < <= > >= == !=
= := ( ) [ ] { } , : . ; @ ~ ! & | ^ << >> ' " \\ # 0 1 2 3.5 1e9 1e999 0x1f 1_0 1j
9999999999999999999 f' r" b' ''' ... -> *k **k
"""
BLANKS = ["\n", "\t", "\x0c", "\x00", "\u2028", "\xe9"]
WORDS = [*VARIABLES, *ALL_FUNCTIONS, *INPUTS, *_SAMPLES.split(), *BLANKS]
TEXTS = st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.booleans())
@example("__import__('os').system('true')", False)
@example("().__class__.__bases__[0].__subclasses__()", True)
def test_any_text_is_an_expression_or_an_error(text: str, is_mask: bool) -> None:
    scope = MASK if is_mask else SCORE
    found = parse(text, scope)
    assert (found.expr is None) == bool(found.mistakes)
    if found.expr is not None:
        kind_of(found.expr)
        again = parse(expression_text(found.expr).replace("dot", "score"), scope)
        assert again.expr == found.expr
    for mistake in found.mistakes:
        assert 0 <= mistake.start < max(len(text), 1)
        assert mistake.length >= 1


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.sampled_from(["mask", "score"]))
def test_a_spec_with_any_expression_is_a_spec_or_an_error(text: str, key: str) -> None:
    document = {"heads": 4, "head_dim": 8, key: text}
    spec = None
    with contextlib.suppress(SpecError):
        spec = read_spec(document)
    if spec is not None:
        elaborate(spec)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch ran')",
        "open('ran', 'w') < k",
        "[c for c in ().__class__.__base__.__subclasses__()] == k",
        "(lambda: exec('ran = 1'))() < k",
        "eval('1') < k",
        "exec(q) < k",
        "breakpoint() < k",
        "k < q or print(q)",
        "globals()[k] < q",
        "f'{open(chr(114))}' < k",
        "max(k, *map(print, q)) < 1",
        "doc.__class__ == k",
        "abs.__self__ == k",
    ],
)
def test_nothing_in_a_spec_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("k < q", MASK).expr is not None  # what it imports is imported
    with watched() as events:
        for key in ("mask", "score"):
            with pytest.raises(SpecError):
                read_spec({"heads": 4, "head_dim": 8, "inputs": _declared(), key: text})
    assert set(events) <= {"compile"}  # ast.parse makes trees, and nothing executes them
    assert not list(tmp_path.iterdir())


_WATCHED = ("exec", "open", "os.system", "subprocess.Popen", "compile")
_events: list[str] | None = None


def _hook(event: str, _arguments: tuple[Any, ...]) -> None:
    if _events is not None and event in _WATCHED:
        _events.append(event)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """What Python audits meanwhile; a hook cannot be taken out, so there is one for all tests."""
    global _events
    if _hook not in _installed:
        sys.addaudithook(_hook)
        _installed.append(_hook)
    events = _events = []
    yield events
    _events = None


_installed: list[Any] = []


def _declared() -> dict[str, Any]:
    return {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}}


def test_a_tree_of_any_node_is_refused_that_has_no_case() -> None:
    known = {
        "Constant", "Name", "UnaryOp", "BinOp", "BoolOp", "Compare", "IfExp", "Call", "Subscript",
    }  # fmt: skip
    source = Path(sys.modules[parse.__module__].__file__ or "").read_text(encoding="utf-8")
    [value] = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "value"
    ]
    cases = [
        case.pattern.cls.attr
        for match in ast.walk(value)
        if isinstance(match, ast.Match)
        for case in match.cases
        if isinstance(case.pattern, ast.MatchClass) and isinstance(case.pattern.cls, ast.Attribute)
    ]
    assert known <= set(cases)
    assert set(cases) - known <= {"Starred"}


# ---------------------------------------------------------------- ALiBi


def test_slopes_are_those_of_the_published_models() -> None:
    golden = json.loads((Path(__file__).parent / "alibi_slopes.json").read_text())
    for heads, slopes in golden.items():
        assert alibi_slopes(int(heads)) == pytest.approx(slopes, rel=1e-12), heads


@pytest.mark.parametrize("heads", [1, 5, 7, 40, 71, 112])
def test_slopes_for_any_number_of_heads(heads: int) -> None:
    slopes = alibi_slopes(heads)
    assert len(slopes) == len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)
