"""Generates mutations of Python source: small, plausible faults in function bodies."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
# A missing or reworded log line is not a fault.
NOT_MUTATED = frozenset({"debug", "info", "warning", "error", "exception", "super"})
COMMUTATIVE = frozenset({"max", "min"})


@dataclass(frozen=True, slots=True)
class Mutation:
    """Mutation of a module. first_line, last_line: its statement, counted from 1.

    source: the whole module with the mutation; its other lines are unchanged.
    """

    operator: str
    first_line: int
    last_line: int
    source: str


@dataclass(frozen=True, slots=True)
class _Change:
    operator: str
    statement: ast.stmt
    old: ast.expr | ast.stmt
    new: ast.AST


def mutations_of(source: str) -> list[Mutation]:
    """All mutations of a module in line order. Module-level statements are not mutated."""
    found = [
        Mutation(c.operator, c.statement.lineno, c.statement.end_lineno or 0, changed)
        for statement in _statements(ast.parse(source))
        for c in _changes(statement)
        if (changed := _replaced(source, c.old, c.new)) is not None
    ]
    return sorted(set(found), key=lambda m: (m.first_line, m.operator, m.source))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements in the bodies of functions, without docstrings and definitions."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function and not _is_passed_over(node):
                yield node


def _is_passed_over(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Pass):
        return True
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal | ast.Assert):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Yield):
        return True
    return isinstance(node, ast.Expr) and _name_of(node.value) in NOT_MUTATED


def _changes(statement: ast.stmt) -> Iterator[_Change]:
    yield from _changes_of_statement(statement)
    for expression in _expressions(statement):
        for operator, new in _changes_of_expression(expression):
            yield _Change(operator, statement, expression, new)


def _changes_of_statement(statement: ast.stmt) -> Iterator[_Change]:
    match statement:
        case ast.Expr() | ast.AugAssign():
            yield _Change("delete statement", statement, statement, ast.Pass())
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield _Change("return None", statement, value, ast.Constant(None))
        case ast.If(test=test) | ast.While(test=test) if not _is_constant(test):
            yield _Change("negate condition", statement, test, ast.UnaryOp(ast.Not(), test))
        case ast.Continue():
            yield _Change("continue as break", statement, statement, ast.Break())
        case ast.Break():
            yield _Change("break as continue", statement, statement, ast.Continue())


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions of this statement, without nested statements and annotations."""
    for name, value in ast.iter_fields(statement):
        if name == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr | ast.withitem | ast.match_case):
                yield from _walk(child.guard if isinstance(child, ast.match_case) else child)


def _walk(node: ast.AST | None) -> Iterator[ast.expr]:
    if node is None or isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.Call) and _name_of(node) in NOT_MUTATED:
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _changes_of_expression(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITES:
            yield "compare", _with(node, ops=[OPPOSITES[type(op)]()])
        case ast.BinOp(op=op, left=left) if type(op) in OPPOSITES and not _is_text(left):
            yield "arithmetic", _with(node, op=OPPOSITES[type(op)]())
        case ast.BoolOp(op=op, values=values):
            yield "and as or", _with(node, op=OPPOSITES[type(op)]())
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield "drop operand", rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "drop unary operator", operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "swap branches", ast.IfExp(test, orelse, body)
        case ast.Call(args=[first, second, *rest]) if _is_ordered(node):
            yield "swap arguments", _with(node, args=[second, first, *rest])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replaced(source: str, old: ast.expr | ast.stmt, new: ast.AST) -> str | None:
    """Module source with one node replaced. None if it is unchanged or invalid."""
    text = ast.unparse(ast.fix_missing_locations(new))
    if isinstance(new, ast.expr):
        text = f"({text})"
    raw = source.encode()
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    assert old.end_lineno is not None
    assert old.end_col_offset is not None
    begin = starts[old.lineno - 1] + old.col_offset
    end = starts[old.end_lineno - 1] + old.end_col_offset
    changed = (raw[:begin] + text.encode() + raw[end:]).decode()
    try:
        is_same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
    except SyntaxError:
        return None
    return None if is_same else changed


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_ordered(call: ast.Call) -> bool:
    """Whether swapping the first two arguments of the call changes its meaning."""
    is_starred = any(isinstance(argument, ast.Starred) for argument in call.args[:2])
    return not is_starred and _name_of(call) not in COMMUTATIVE
