"""How readable code is, in figures that no formatter can move: nodes per statement, and empty names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Words that fit everything and so say nothing.
STAND_INS = frozenset(
    [
        "about",
        "asked",
        "chosen",
        "each",
        "every",
        "found",
        "given",
        "held",
        "here",
        "kept",
        "known",
        "made",
        "mine",
        "own",
        "place",
        "said",
        "seen",
        "shown",
        "some",
        "tell",
        "there",
        "told",
        "wanted",
        "whole",
        "why",
    ]
)
HEAVY_NODES = 25  # a statement with more is hard to read in one go
MAX_POSITIONAL_FIELDS = 4  # of a record that is built by position

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Figures:
    """Of all files together."""

    nodes_per_statement: float
    heavy_share: float  # of statements
    stand_in_share: float  # of bound names
    comprehensions: float  # per 1,000 statements, as the next two
    ternaries: float
    parallel_assignments: float


def measure(paths: list[Path]) -> Figures:
    """The figures of some files."""
    sizes: list[int] = []
    names: list[str] = []
    comprehensions = 0
    ternaries = 0
    parallel = 0
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names += [name for name, _ in bound_names(tree)]
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS) and not _is_docstring(node):
                sizes.append(own_size(node))
            comprehensions += isinstance(node, _COMPREHENSIONS)
            ternaries += isinstance(node, ast.IfExp)
            parallel += is_parallel_assignment(node)
    thousands = len(sizes) / 1000
    return Figures(
        nodes_per_statement=sum(sizes) / len(sizes),
        heavy_share=sum(size > HEAVY_NODES for size in sizes) / len(sizes),
        stand_in_share=sum(name in STAND_INS for name in names) / len(names),
        comprehensions=comprehensions / thousands,
        ternaries=ternaries / thousands,
        parallel_assignments=parallel / thousands,
    )


def own_size(statement: ast.stmt) -> int:
    """The syntax nodes of a statement, without those of statements inside it."""
    count = 0
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        count += 1
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append(child)
    return count


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are assigned, are parameters, or are functions and classes, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def is_parallel_assignment(node: ast.AST) -> bool:
    """Whether a tuple is assigned to a tuple: several things in one statement."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def untyped_values(tree: ast.AST) -> int:
    """How many parameters, variables and fields are annotated as `Any`, which says nothing."""
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            count += isinstance(node.annotation, ast.Name) and node.annotation.id == "Any"
    return count


def records(tree: ast.AST) -> Iterator[str]:
    """The names of the dataclasses that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if any(decorator.startswith("dataclass") for decorator in decorators):
                yield node.name


def long_positional_calls(tree: ast.AST, record_names: set[str]) -> Iterator[tuple[str, int]]:
    """Records built from more positional arguments than a reader can keep apart, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in record_names:
            starred = any(isinstance(argument, ast.Starred) for argument in node.args)
            if len(node.args) > MAX_POSITIONAL_FIELDS or starred:
                yield node.func.id, node.lineno


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
