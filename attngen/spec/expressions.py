"""One-line Python expressions to typed expression trees; nothing is ever evaluated.

Input: the text of a `score` or `mask` and the names it may use. Output: an :data:`Expr`, or every
mistake with its place in the text. The text is split into words by :mod:`attngen.spec.lexical`,
parsed by Python's `ast`, and converted node by node: what has no case here is refused.
"""

from __future__ import annotations

import ast
import math
import warnings
from dataclasses import dataclass
from typing import Literal

from attngen.ir.expr import DOT, Binary, BinaryOp, Const, Expr, Load, Select, Unary, Var
from attngen.ir.kinds import Kind, kind_of
from attngen.ir.verify import MAX_INTEGER
from attngen.spec.lexical import Mistake, spelling_mistakes
from attngen.spec.soundness import unsound
from attngen.spec.suggest import either, nearest
from attngen.spec.vocabulary import (
    ALL_FUNCTIONS,
    FOLDS,
    FUNCTIONS,
    OPERATORS,
    OTHER_FUNCTIONS,
    OTHER_NAMES,
    WORDS,
    Scope,
    index_hint,
)

MAX_LEVELS = 60
MAX_NODES = 400


@dataclass(frozen=True, slots=True)
class Parsed:
    """The tree of an expression, or what is wrong with it."""

    expr: Expr | None
    mistakes: tuple[Mistake, ...] = ()


def parse(text: str, scope: Scope) -> Parsed:
    """The expression that `text` is; its mistakes where it is none."""
    mistakes = spelling_mistakes(text)
    if mistakes:
        return Parsed(None, mistakes)
    tree = _tree(text)
    if isinstance(tree, Mistake):
        return Parsed(None, (tree,))
    reader = _Reader(text, scope)
    expr = reader.value(tree, 0)
    if expr is None:
        return Parsed(None, tuple(reader.mistakes))
    kind = kind_of(expr)
    if scope.wants == "truth" and kind != "boolean":
        message = f"is {WORDS[kind]}, and a {scope.noun} is a truth value"
        reader.refuse(tree, message, _truth_hint(kind))
    if scope.wants == "number" and kind == "boolean":
        hint = "write score if condition else x for a choice"
        reader.refuse(tree, "is a truth value, and a score is a number", hint)
    return Parsed(None if reader.mistakes else expr, tuple(reader.mistakes))


def _truth_hint(kind: Kind) -> str:
    return "compare it, such as x != 0" if kind == "integer" else "compare it, such as x > 0.5"


def _tree(text: str) -> ast.expr | Mistake:
    """Python's tree of a text whose words are known to be those of the language."""
    line = "".join(" " if c in "\r\n\t" else c for c in text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(f"({line})", mode="eval").body
    except SyntaxError as error:
        place = min(max((error.offset or 2) - 2, 0), max(len(text.rstrip()) - 1, 0))
        hint = ""
        words = text.split()
        if "if" in words and "else" not in words:
            hint = "a choice has both sides: a if condition else b"
        return Mistake(place, 1, "cannot be read from here on", hint)
    except (RecursionError, MemoryError, ValueError):
        return Mistake(0, 1, "is nested too deeply")


class _Reader:
    """Converts one tree and collects what is wrong with it."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.text = text
        self.scope = scope
        self.mistakes: list[Mistake] = []
        self.nodes = 0

    def refuse(self, node: ast.expr, message: str, hint: str = "") -> None:
        """Adds a mistake at `node` and gives None in its place."""
        start = min(max(node.col_offset - 1, 0), len(self.text) - 1)
        end = max((node.end_col_offset or 0) - 1, start + 1)
        self.mistakes.append(Mistake(start, end - start, message, hint))

    def value(self, node: ast.expr, level: int) -> Expr | None:
        """The expression that `node` is, or None once it is reported."""
        self.nodes += 1
        if level > MAX_LEVELS or self.nodes > MAX_NODES:
            if self.nodes < 2 * MAX_NODES:
                self.refuse(node, "goes too deep here, or is too long")
                self.nodes = 2 * MAX_NODES
            return None
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name():
                return self.name(node)
            case ast.UnaryOp():
                return self.unary(node, level)
            case ast.BinOp():
                return self.arithmetic(node, level)
            case ast.BoolOp():
                return self.logic(node, level)
            case ast.Compare():
                return self.comparison(node, level)
            case ast.IfExp():
                return self.choice(node, level)
            case ast.Call():
                return self.call(node, level)
            case ast.Subscript():
                return self.load(node, level)
            case ast.Tuple() | ast.List():
                self.refuse(node, "has a list, and an expression is one value")
            case ast.Starred():
                self.refuse(node, "has a star that unpacks", "write the arguments one by one")
            case _:
                self.refuse(node, "has something that is not part of the language")
        return None

    def constant(self, node: ast.Constant) -> Expr | None:
        """A number or a truth value."""
        value = node.value
        if isinstance(value, bool):
            return Const(value, self.scope.key)
        if isinstance(value, int) and value >= MAX_INTEGER:
            hint = "write it as a real number, with .0 at its end"
            self.refuse(node, f"has a whole number beyond 2**{MAX_INTEGER.bit_length() - 1}", hint)
        elif isinstance(value, float) and not math.isfinite(value):
            self.refuse(node, "has a number beyond the range of real numbers")
        elif isinstance(value, (int, float)):
            return Const(value, self.scope.key)
        else:
            self.refuse(node, "has a constant that is no number")
        return None

    def name(self, node: ast.Name) -> Expr | None:
        """A variable or a parameter."""
        name, scope = node.id, self.scope
        if name in scope.variables:
            return Var(name, scope.key, scope.variables[name])
        if name == "score" and scope.score:
            return DOT
        if name in scope.parameters:
            return Const(scope.parameters[name], scope.key)
        if name in scope.inputs:
            self.refuse(node, f"reads '{name}' without an index", index_hint(scope.inputs[name]))
        elif name == "score" and scope.noun == "mask":
            hint = "a mask says which pairs attend; write score: x if condition else y"
            self.refuse(node, "reads 'score', which a mask does not know", hint)
        elif name in ALL_FUNCTIONS:
            self.refuse(node, f"reads the function '{name}'", f"write {name}(x)")
        else:
            self.unknown(node, name)
        return None

    def unknown(self, node: ast.expr, name: str) -> None:
        """Reports a name that stands for nothing."""
        known = self.scope.names
        near = OTHER_NAMES.get(name.lower())
        near = near if near in known else nearest(name, known)
        hint = f"did you mean '{near}'?" if near else f"the names are {', '.join(known)}"
        self.refuse(node, f"reads '{name}', which is not defined", hint)

    def number(self, node: ast.expr, level: int, what: str) -> Expr | None:
        """A number that is an operand of `what`."""
        expr = self.value(node, level + 1)
        if expr is not None and kind_of(expr) == "boolean":
            hint = "write int(...) for 1 and 0, or a if condition else b"
            self.refuse(node, f"has a truth value in {what}, which takes numbers", hint)
            return None
        return expr

    def truth(self, node: ast.expr, level: int, what: str) -> Expr | None:
        """A truth value that is an operand of `what`."""
        expr = self.value(node, level + 1)
        if expr is not None and (kind := kind_of(expr)) != "boolean":
            message = f"has {WORDS[kind]} in {what}, which takes truth values"
            self.refuse(node, message, _truth_hint(kind))
            return None
        return expr

    def unary(self, node: ast.UnaryOp, level: int) -> Expr | None:
        """A sign or a negation."""
        if isinstance(node.op, ast.Not):
            operand = self.truth(node.operand, level, "'not'")
            return None if operand is None else Unary("not", operand, self.scope.key)
        operand = self.number(node.operand, level, "a sign")
        if operand is None or isinstance(node.op, ast.UAdd):
            return operand
        if isinstance(operand, Const):
            return Const(-operand.value, self.scope.key)
        return self.checked(node, Unary("neg", operand, self.scope.key))

    def arithmetic(self, node: ast.BinOp, level: int) -> Expr | None:
        """A sum, product or quotient."""
        if type(node.op) not in OPERATORS:
            self.refuse(node, "has an operator that is not part of the language")
            return None
        sign, op = OPERATORS[type(node.op)]
        left = self.number(node.left, level, f"'{sign}'")
        right = self.number(node.right, level, f"'{sign}'")
        if left is None or right is None:
            return None
        if op in ("floordiv", "mod") and "real" in (kind_of(left), kind_of(right)):
            hint = "write floor(a / b)" if op == "floordiv" else "write a - b * floor(a / b)"
            self.refuse(node, f"has a real number in '{sign}', which takes whole numbers", hint)
            return None
        return self.checked(node, Binary(op, left, right, self.scope.key))

    def logic(self, node: ast.BoolOp, level: int) -> Expr | None:
        """A conjunction or disjunction."""
        op: Literal["and", "or"] = "and" if isinstance(node.op, ast.And) else "or"
        operands = [self.truth(operand, level, f"'{op}'") for operand in node.values]
        return self.folded(op, operands)

    def folded(self, op: BinaryOp, operands: list[Expr | None]) -> Expr | None:
        """The operands joined from the left."""
        result = operands[0]
        for operand in operands[1:]:
            if result is None or operand is None:
                return None
            result = Binary(op, result, operand, self.scope.key)
        return result

    def comparison(self, node: ast.Compare, level: int) -> Expr | None:
        """A comparison, or a chain of them."""
        places = [node.left, *node.comparators]
        values = [self.value(place, level + 1) for place in places]
        pairs: list[Expr | None] = []
        for number, operator in enumerate(node.ops):
            left, right = values[number], values[number + 1]
            if type(operator) not in OPERATORS:
                self.refuse(node, "has a comparison that is not part of the language")
                return None
            sign, op = OPERATORS[type(operator)]
            if left is None or right is None:
                pairs.append(None)
                continue
            truths = [kind_of(left) == "boolean", kind_of(right) == "boolean"]
            if any(truths) and not (all(truths) and op in ("eq", "ne")):
                at = places[number + (not truths[0])]
                hint = "join truth values by and, or, not"
                self.refuse(at, f"has a truth value in '{sign}', which compares numbers", hint)
                pairs.append(None)
                continue
            pairs.append(Binary(op, left, right, self.scope.key))
        return self.folded("and", pairs)

    def choice(self, node: ast.IfExp, level: int) -> Expr | None:
        """``then if condition else otherwise``."""
        condition = self.truth(node.test, level, "'if'")
        then = self.value(node.body, level + 1)
        otherwise = self.value(node.orelse, level + 1)
        if condition is None or then is None or otherwise is None:
            return None
        kinds = (kind_of(then), kind_of(otherwise))
        if "boolean" in kinds and kinds[0] != kinds[1]:
            message = f"chooses between {WORDS[kinds[0]]} and {WORDS[kinds[1]]}"
            self.refuse(node, message, "both sides are truth values, or both are numbers")
            return None
        return Select(condition, then, otherwise, self.scope.key)

    def call(self, node: ast.Call, level: int) -> Expr | None:
        """A function of numbers."""
        if not isinstance(node.func, ast.Name):
            hint = f"the functions are {', '.join(ALL_FUNCTIONS)}"
            self.refuse(node.func, "calls something that is no function", hint)
            return None
        name = node.func.id
        if name not in ALL_FUNCTIONS:
            hint = OTHER_FUNCTIONS.get(name, "")
            if name in self.scope.inputs:
                hint = index_hint(self.scope.inputs[name])
            elif not hint and (near := nearest(name, ALL_FUNCTIONS)):
                hint = f"did you mean '{near}'?"
            hint = hint or f"the functions are {', '.join(ALL_FUNCTIONS)}"
            self.refuse(node.func, f"calls '{name}', which is no function", hint)
            return None
        arguments = [
            self.value(argument, level + 1)
            if name in ("int", "float")
            else self.number(argument, level, f"'{name}'")
            for argument in node.args
        ]
        wanted = "two or more arguments" if name in FOLDS else "one argument"
        if node.keywords or (len(arguments) < 2 if name in FOLDS else len(arguments) != 1):
            hint = f"write {name}(x, y)" if name in FOLDS else f"write {name}(x)"
            self.refuse(node, f"gives '{name}' {len(arguments)}, which takes {wanted}", hint)
            return None
        if name in FOLDS:
            fold: Literal["min", "max"] = "min" if name == "min" else "max"
            return self.folded(fold, arguments)
        if arguments[0] is None:
            return None
        return self.checked(node, Unary(FUNCTIONS[name], arguments[0], self.scope.key))

    def load(self, node: ast.Subscript, level: int) -> Expr | None:
        """An element of a side input."""
        inputs = self.scope.inputs
        if not isinstance(node.value, ast.Name) or node.value.id not in inputs:
            hint = f"the side inputs are {either(tuple(inputs))}"
            if not inputs:
                hint = "declare it: inputs: {name: {shape: [batch, kv_len], dtype: int}}"
            elif isinstance(node.value, ast.Name) and (near := nearest(node.value.id, inputs)):
                hint = f"did you mean '{near}'?"
            what = f"'{node.value.id}'" if isinstance(node.value, ast.Name) else "a value"
            self.refuse(node.value, f"takes an element of {what}, which is no side input", hint)
            return None
        given = inputs[node.value.id]
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(places) != len(given.shape):
            count = "1 index" if len(places) == 1 else f"{len(places)} indices"
            axes = "1 axis" if len(given.shape) == 1 else f"{len(given.shape)} axes"
            message = f"gives '{given.name}' {count} for {axes}"
            self.refuse(node, message, index_hint(given))
            return None
        indices = [self.value(place, level + 1) for place in places]
        known = tuple(index for index in indices if index is not None)
        for place, index in zip(places, indices, strict=True):
            if index is not None and (kind := kind_of(index)) != "integer":
                hint = "write int(...)" if kind == "real" else "write int(...) for 1 and 0"
                self.refuse(place, f"has {WORDS[kind]} as an index", hint)
                return None
        if len(known) != len(indices):
            return None
        return Load(given.name, known, self.scope.key, given.dtype)

    def checked(self, node: ast.expr, expr: Expr) -> Expr | None:
        """`expr`, unless it divides by zero or leaves the 64 bits of a whole number."""
        found = unsound(expr, self.scope.ranges)
        if found is not None:
            self.refuse(node, *found)
            return None
        return expr
