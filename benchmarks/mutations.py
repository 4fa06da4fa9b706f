"""Mutants: the versions of a file in which one small thing is different.

Operators, numbers, truth values and functions with a counterpart (`min` and `max`) are exchanged, conditions negated,
calls and augmented assignments left out, and returned values replaced by None.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field

_OPERATOR_PAIRS = [
    *[(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)],
    *[(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.LShift, ast.RShift), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or)],
]
_NAME_PAIRS = [
    *[("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("sum", "mean"), ("any", "all")],
    *[("clamp_min", "clamp_max"), ("clamp_min_", "clamp_max_"), ("add_", "sub_"), ("mul_", "div_")],
    *[("zeros", "ones"), ("zeros_like", "ones_like"), ("new_zeros", "new_ones")],
]
OPERATORS: dict[type, type] = {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
NAMES: dict[str, str] = {}
for _first, _second in _OPERATOR_PAIRS:
    OPERATORS |= {_first: _second, _second: _first}
for _first, _second in _NAME_PAIRS:
    NAMES |= {_first: _second, _second: _first}

Change = tuple[ast.expr | ast.stmt, str]  # a node, and the text to replace it by


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and what the tests said of it."""

    module: str
    line: int
    before: str  # the first line that changes
    after: str
    diff: str
    source: str = field(default="", repr=False)  # the text of the changed file
    status: str = ""  # killed, crashed, timeout or survived
    seconds: float = 0.0
    test: str = ""  # that failed first


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mutants of a file, from top to bottom."""
    encoded = source.encode()
    line_starts = [0]
    for line in encoded.splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))
    mutants = {}
    for node, text in _changes(ast.parse(source)):
        start = line_starts[node.lineno - 1] + node.col_offset
        end = line_starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        changed = (encoded[:start] + text.encode() + encoded[end:]).decode()
        before = source.splitlines()
        after = changed.splitlines()
        number = next((k for k, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
        if number is None:
            continue
        lines = difflib.unified_diff(before, after, f"a/{module}.py", f"b/{module}.py", lineterm="", n=1)
        diff = "\n".join(lines)
        mutants[diff] = Mutant(
            module=module,
            line=number + 1,
            before=before[number].strip(),
            after=after[number].strip(),
            diff=diff,
            source=changed,
        )
    return sorted(mutants.values(), key=lambda mutant: mutant.line)


def _changes(node: ast.AST) -> Iterator[Change]:
    """The changes of all that is below a node."""
    for child in _children(node):
        yield from _changes_of(child)
        yield from _changes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in this one that are worth a change: no messages, annotations and documentation."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_text = isinstance(child, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom)
            is_strict = isinstance(child, ast.keyword) and child.arg == "strict"
            is_setting = isinstance(node, ast.Module) and _is_number(child)
            if isinstance(child, ast.AST) and not (is_text or is_strict or is_setting):
                yield child


def _is_number(node: ast.AST) -> bool:
    """Whether a statement of a module names a number: those of the solver are tuned, and exact for no test."""
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant | ast.BinOp)


def _changes_of(node: ast.AST) -> Iterator[Change]:
    """The changes of one node."""
    match node:
        case ast.Compare():
            for k, operator in enumerate(node.ops):
                changed = copy.deepcopy(node)
                changed.ops[k] = OPERATORS[type(operator)]()
                yield node, f"({ast.unparse(changed)})"
        case ast.BinOp() | ast.BoolOp() if type(node.op) in OPERATORS:
            yield node, f"({_with_other_operator(node)})"
        case ast.AugAssign():
            yield node, "pass"
            if type(node.op) in OPERATORS:
                yield node, _with_other_operator(node)
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):  # -1 is an axis, and often 2
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool()):
            yield node, str(not node.value)
        case ast.Constant(value=int(number)):
            yield node, str(number + 1)
            if number == 1:
                yield node, "0"
        case ast.Constant(value=float(number)):
            yield node, repr(2 * number or 1.0)
        case ast.Name(id=name) if name in NAMES:
            yield node, NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            changed = copy.deepcopy(node)
            changed.attr = NAMES[name]
            yield node, ast.unparse(changed)
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Return(value=ast.expr()):
            yield node, "return None"
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield test, f"(not {ast.unparse(test)})"


def _with_other_operator(node: ast.BinOp | ast.BoolOp | ast.AugAssign) -> str:
    changed = copy.deepcopy(node)
    changed.op = OPERATORS[type(node.op)]()
    return ast.unparse(changed)
