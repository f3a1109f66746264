"""The source of an analysis, rewritten so that each of its operations is seen as it happens.

Every call, attribute, index, operator, f-string, loop and condition of the source becomes the same
operation with a word to the recorder before or after it: ``f(x)`` becomes, in the same frame,

    end(17, begin(17, f, x)(*args(), **kwargs()))

so that a library is called exactly as it was, from the same frame and with the same values. The
recorder is the builtin name ``__traced__`` while a trace runs; 17 is the number of a `Site`.
Annotations and patterns are left as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from attrs import frozen

NAME = "__traced__"
"""The name of the recorder in rewritten code; with two underscores at its end it is not mangled."""


@frozen
class Site:
    """A place in the source.

    Parameters
    ----------
    file
        The file's name, or empty.
    cell
        The number of the cell, from 1; 0 outside of notebooks.
    line
        The line, in its cell or file, from 1.
    text
        The source of that line.
    """

    file: str
    cell: int
    line: int
    text: str

    def __str__(self) -> str:
        if self.cell:
            return f"cell {self.cell}, line {self.line}"
        return f"{self.file}, line {self.line}" if self.file else f"line {self.line}"


def rewritten(
    tree: ast.Module,
    text: str,
    sites: list[Site],
    *,
    file: str = "",
    cell: int = 0,
    shows: bool = False,
) -> ast.Module:
    """Return a module with every operation announced; ``sites`` grows by the places in it.

    Parameters
    ----------
    tree
        The module as it was parsed.
    text
        Its source.
    sites
        The places known so far; their positions are their numbers.
    file, cell
        Where it stands.
    shows
        Whether the value of a last expression is shown, as in a cell of a notebook.
    """
    rewriter = _Rewriter(text.splitlines(), sites, file, cell)
    last = tree.body[-1] if shows and tree.body else None
    silent = text.rstrip().endswith(";")
    body: list[ast.stmt] = []
    for statement in tree.body:
        if statement is last and isinstance(statement, ast.Expr) and not silent:
            shown = rewriter.told("display", statement, rewriter.visit(statement.value))
            body.append(ast.copy_location(ast.Expr(shown), statement))
            continue
        done = rewriter.visit(statement)
        body += done if isinstance(done, list) else [done]
    return ast.fix_missing_locations(ast.Module(body, type_ignores=[]))


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _is_mangled(name: str) -> bool:
    """Whether a class would change the name of an attribute: it is left to Python then."""
    return name.startswith("__") and not name.endswith("__")


class _Rewriter(ast.NodeTransformer):
    """Visits a module; each method returns what stands in place of a node."""

    def __init__(self, lines: Sequence[str], sites: list[Site], file: str, cell: int) -> None:
        self.lines, self.sites, self.file, self.cell = lines, sites, file, cell

    # --- words to the recorder ---

    def site(self, node: ast.AST) -> ast.Constant:
        line = getattr(node, "lineno", 0)
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        self.sites.append(Site(self.file, self.cell, line, text))
        return ast.Constant(len(self.sites) - 1)

    def told(self, word: str, node: ast.AST, *arguments: ast.expr, site: Any = None) -> ast.Call:
        """Return ``__traced__.word(site, arguments...)``, at the place of a node."""
        first = site or self.site(node)
        function = ast.Attribute(_load(NAME), word, ast.Load())
        call = ast.Call(function, [first, *arguments], [])
        return ast.copy_location(call, node)

    def _statement(self, word: str, node: ast.AST, site: ast.Constant) -> ast.stmt:
        return ast.copy_location(ast.Expr(self.told(word, node, site=site)), node)

    # --- expressions ---

    def visit_Call(self, node: ast.Call) -> ast.expr:
        # zero-argument super() reads its caller's frame
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return node
        function = self.visit(node.func)
        arguments = [self.visit(each) for each in node.args]
        keywords = [ast.keyword(each.arg, self.visit(each.value)) for each in node.keywords]
        site = self.site(node)
        begun = self.told("begin", node, function, *arguments, site=site)
        begun.keywords = keywords
        recorder = _load(NAME)
        given = ast.Call(ast.Attribute(recorder, "args", ast.Load()), [], [])
        named = ast.Call(ast.Attribute(recorder, "kwargs", ast.Load()), [], [])
        call = ast.Call(begun, [ast.Starred(given, ast.Load())], [ast.keyword(None, named)])
        return self.told("end", node, ast.copy_location(call, node), site=site)

    def visit_Starred(self, node: ast.Starred) -> ast.Starred:
        value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            value = self.told("spread", node, value)
        return ast.copy_location(ast.Starred(value, node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load) or _is_mangled(node.attr):
            return node
        return self.told("attribute", node, node.value, ast.Constant(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            self.generic_visit(node)
            return node
        return self.told("item", node, self.visit(node.value), self._index(node.slice))

    def _index(self, node: ast.expr) -> ast.expr:
        """Return an index as an expression: slices become calls of ``slice``."""
        if isinstance(node, ast.Slice):
            ends = [
                ast.Constant(None) if end is None else self.visit(end)
                for end in (node.lower, node.upper, node.step)
            ]
            return ast.copy_location(
                ast.Call(ast.Attribute(_load(NAME), "slice", ast.Load()), ends, []), node
            )
        if isinstance(node, ast.Tuple):
            return ast.copy_location(
                ast.Tuple([self._index(each) for each in node.elts], ast.Load()), node
            )
        visited: ast.expr = self.visit(node)
        return visited

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        operator = ast.Constant(type(node.op).__name__)
        return self.told("binary", node, operator, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.operand, ast.Constant):
            return node
        operator = ast.Constant(type(node.op).__name__)
        return self.told("unary", node, operator, self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operators: list[ast.expr] = [ast.Constant(type(each).__name__) for each in node.ops]
        operands = [self.visit(each) for each in (node.left, *node.comparators)]
        return self.told("compare", node, ast.Tuple(operators, ast.Load()), *operands)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        site = self.site(node)
        node.test = self.told("choose", node, self.visit(node.test), site=site)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return self.told("chosen", node, node, site=site)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        parts: list[ast.expr] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                form = (
                    ast.Constant("") if part.format_spec is None else self.visit(part.format_spec)
                )
                items = [self.visit(part.value), ast.Constant(part.conversion), form]
                parts.append(ast.Tuple(items, ast.Load()))
            else:
                parts.append(part)
        return self.told("joined", node, *parts)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.visit(node.value)
        return node

    def visit_List(self, node: ast.List) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            self.generic_visit(node)
            return node
        is_literal = len(node.elts) > 2 and all(_is_literal(each) for each in node.elts)
        self.generic_visit(node)
        return self.told("literal", node, node) if is_literal else node

    # --- comprehensions ---

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._comprehension(node, "built")

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self._comprehension(node, "built")

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        return self._comprehension(node, "built")

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._comprehension(node, "built")

    def _comprehension(self, node: Any, word: str) -> ast.expr:
        site = self.site(node)
        for each in node.generators:
            each.target = self.visit(each.target)
            depth = ast.Constant(_depth(each.target))
            each.iter = self.told("steps", node, self.visit(each.iter), depth, site=site)
            each.ifs = [self.told("sifted", node, self.visit(test), site=site) for test in each.ifs]
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.visit(node.key), self.visit(node.value)
        else:
            node.elt = self.visit(node.elt)
        return self.told(word, node, node, site=site)

    # --- statements ---

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        value = self.visit(node.value)
        targets = node.targets
        if any(isinstance(each, ast.Tuple | ast.List) for each in targets):
            value = self.told("unpacked", node, value, ast.Constant(max(map(_depth, targets))))
        target = targets[0]
        if len(targets) == 1 and isinstance(target, ast.Subscript):
            parts = (value, self.visit(target.value), self._index(target.slice))
            return ast.copy_location(ast.Expr(self.told("set_item", node, *parts)), node)
        if len(targets) == 1 and isinstance(target, ast.Attribute) and not _is_mangled(target.attr):
            parts = (value, self.visit(target.value), ast.Constant(target.attr))
            return ast.copy_location(ast.Expr(self.told("set_attribute", node, *parts)), node)
        if len(targets) == 1 and isinstance(target, ast.Name):
            value = self.told("named", node, value, ast.Constant(target.id))
        node.targets, node.value = [self.visit(each) for each in targets], value
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.target = self.visit(node.target)
        node.value = None if node.value is None else self.visit(node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        operator, value, target = type(node.op).__name__, self.visit(node.value), node.target
        if isinstance(target, ast.Name):
            changed = self.told("changed", node, ast.Constant(operator), _load(target.id), value)
            return ast.copy_location(ast.Assign([target], changed), node)
        if isinstance(target, ast.Subscript):
            parts = (value, self.visit(target.value), self._index(target.slice))
            word = "change_item"
        elif not _is_mangled(target.attr):
            parts = (value, self.visit(target.value), ast.Constant(target.attr))
            word = "change_attribute"
        else:
            node.value = value
            return node
        return ast.copy_location(
            ast.Expr(self.told(word, node, ast.Constant(operator), *parts)), node
        )

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        site = self.site(node)
        node.target = self.visit(node.target)
        depth = ast.Constant(_depth(node.target))
        node.iter = self.told("steps", node, self.visit(node.iter), depth, site=site)
        return self._loop(node, site)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        site = self.site(node)
        node.test = self.told("test", node, self.visit(node.test), site=site)
        return self._loop(node, site)

    def _loop(self, node: Any, site: ast.Constant) -> list[ast.stmt]:
        """Return a loop between words that it begins and ends, however it is left."""
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        end = self._statement("done", node, site)
        whole = ast.copy_location(ast.Try([node], [], [], [end]), node)
        return [self._statement("loop", node, site), whole]

    def visit_If(self, node: ast.If) -> ast.stmt:
        site = self.site(node)
        leaves = any(_leaves(each) for each in node.body)
        node.test = self.told("test", node, self.visit(node.test), site=site)
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        if leaves:  # what follows depends on the condition too, until the loop or function ends
            return node
        end = self._statement("done", node, site)
        return ast.copy_location(ast.Try([node], [], [], [end]), node)

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        block: list[ast.stmt] = []
        for statement in statements:
            done = self.visit(statement)
            block += done if isinstance(done, list) else [done]
        return block

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is not None:
            node.exc = self.told("raised", node, self.visit(node.exc))
        return node

    # --- what is not rewritten: annotations and patterns ---

    def _function(self, node: Any) -> Any:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        node.args.kw_defaults = [each and self.visit(each) for each in node.args.kw_defaults]
        node.body = self._block(node.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._function(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.MatchValue:
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.MatchClass:
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.MatchMapping:
        return node


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.List | ast.Tuple):
        return all(_is_literal(each) for each in node.elts)
    if isinstance(node, ast.Dict):
        return all(_is_literal(each) for each in node.values)
    return isinstance(node, ast.Constant)


def _depth(target: ast.expr) -> int:
    """Return how deep a target takes its value apart: 0 for a name, 1 for ``a, b``."""
    if isinstance(target, ast.Tuple | ast.List):
        return 1 + max((_depth(each) for each in target.elts), default=0)
    return _depth(target.value) if isinstance(target, ast.Starred) else 0


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement may leave the loop's step or the function in which it stands."""
    if isinstance(statement, ast.Return | ast.Break | ast.Continue):
        return True
    if isinstance(statement, ast.If | ast.With | ast.Try):
        return any(
            _leaves(each) for each in ast.iter_child_nodes(statement) if isinstance(each, ast.stmt)
        )
    return False
