"""Change single operators and numbers in modules, and list the changes that no test of the module finds.

``python tests/mutation/run.py [--sample N] [MODULE ...]`` runs the tests in TESTS once per mutant of a
module, in a process forked from one that has imported what the tests need. cosmic-ray makes the changes;
nothing is written into the tree. Exit status 1 if a mutant survives on a line that EQUIVALENT does not list.
"""

import argparse
import ast
import importlib
import importlib.machinery
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.mutation.table import EQUIVALENT, IMPORTS, TESTS

ROOT = Path(__file__).parents[2]

# One change for each operator: cosmic-ray's other ones (+ to *, <, >> …) are found by the same tests.
_BINARY = (
    "Add_Sub Sub_Add Mul_FloorDiv Div_Mul FloorDiv_Mul Mod_FloorDiv LShift_RShift RShift_LShift BitAnd_BitOr"
)
_COMPARISON = "Eq_NotEq NotEq_Eq Lt_LtE LtE_Lt Gt_GtE GtE_Gt Is_IsNot IsNot_Is"
OPERATORS = (
    *(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in f"{_BINARY} BitOr_BitAnd BitXor_BitAnd Pow_Mul".split()
    ),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in _COMPARISON.split()),
    *(f"core/{name}" for name in ["AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd"]),
    *(f"core/{name}" for name in ["ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ZeroIterationForLoop"]),
    *(f"core/{n}" for n in ["ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer"]),
    *(f"core/ReplaceUnaryOperator_{pair}" for pair in ["USub_UAdd", "Delete_Not", "Delete_Invert"]),
)


@dataclass(frozen=True)
class Mutant:
    """One change of a module: the line before and after it, and the whole source after it."""

    module: str
    number: int
    before: str
    after: str
    source: str

    @property
    def is_known(self) -> bool:
        """Whether EQUIVALENT lists its line."""
        return self.before in EQUIVALENT.get(self.module, {})


def mutants(module: str) -> Iterator[Mutant]:
    """Yield the changes of a module, without those of annotations, messages and decorators of classes."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = (ROOT / module).read_text()
    seen = {_meaning(code)}
    for name in OPERATORS:
        occurrence = 0
        while (changed := mutate_code(code, get_operator(name)(), occurrence)) is not None:
            occurrence += 1
            try:
                meaning = _meaning(changed)
            except SyntaxError:
                # cosmic-ray takes the / and * of a parameter list for operators
                continue
            if meaning not in seen:
                seen.add(meaning)
                yield _mutant(module, code, changed)


def _mutant(module: str, code: str, changed: str) -> Mutant:
    lines = list(zip(code.splitlines(), changed.splitlines(), strict=False))
    number, (before, after) = next((at, pair) for at, pair in enumerate(lines, 1) if pair[0] != pair[1])
    return Mutant(module, number, before.strip(), after.strip(), changed)


class _Meaning(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # no result depends on the size of a cache, or on a check of equal lengths
        node.keywords = [each for each in node.keywords if each.arg not in ("strict", "maxsize")]
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        # such as @dataclass(frozen=True), which no result depends on
        node.decorator_list = []
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        self.generic_visit(node)
        return node


def _meaning(code: str) -> str:
    return ast.dump(_Meaning().visit(ast.parse(code)))


def survivors(
    module: str, tried: Sequence[Mutant | None], *, seconds: float, workers: int
) -> list[Mutant | None]:
    """Return the mutants with which the module's tests pass; None is the module as it is.

    Each has a forked process. One that computes for longer than ``seconds`` is killed, and counts as found;
    so does one that waits for ten times as long.
    """
    waiting = list(reversed(tried))
    running: dict[int, tuple[Mutant | None, float]] = {}
    passed: list[Mutant | None] = []
    while waiting or running:
        while waiting and len(running) < workers:
            mutant = waiting.pop()
            child = _start(mutant, TESTS[module], seconds)
            running[child] = (mutant, time.monotonic() + 10 * seconds)
        time.sleep(0.02)
        for child, (mutant, end) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del running[child]
                if status == 0:
                    passed.append(mutant)
            elif time.monotonic() > end:
                # the next round finds that it has ended, by a signal
                os.killpg(child, signal.SIGKILL)
    return passed


def _start(mutant: Mutant | None, tests: tuple[str, ...], seconds: int) -> int:
    child = os.fork()
    if child:
        os.setpgid(child, child)
        return child
    status = 1
    try:
        os.setpgid(0, 0)
        # of processor time, so that other programs on the machine change no result
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if mutant:
            _replace_source(ROOT / mutant.module, mutant.source)
        status = _run_tests(tests)
    finally:
        os._exit(status)


def _replace_source(path: Path, source: str) -> None:
    get_code = importlib.machinery.SourceFileLoader.get_code

    def replaced(loader: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        if Path(loader.path).resolve() == path:
            return compile(source, loader.path, "exec")
        return get_code(loader, fullname)

    importlib.machinery.SourceFileLoader.get_code = replaced  # type: ignore[assignment,method-assign]


def _run_tests(tests: tuple[str, ...]) -> int:
    import pytest
    from hypothesis import Phase, settings

    # The profile of tests/conftest.py is derived from this one: that an example fails is enough, it need not
    # be the simplest.
    settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate])
    settings.load_profile("unshrunk")
    # a mutant that allocates without end must not take the machine's memory
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    arguments = ["-x", "-q", "--tb=no", "--hypothesis-seed=0", "-p", "no:cacheprovider", "-p", "no:randomly"]
    # one after another, so that the imports of later files cost nothing where an earlier one fails
    statuses = (pytest.main([*arguments, str(ROOT / test)]) for test in tests)
    return int(next((status for status in statuses if status), 0))


def main(arguments: list[str] | None = None) -> int:
    """Print the survivors of each module, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", metavar="MODULE", nargs="*", help=f"default: {', '.join(TESTS)}")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="try N mutants of each module, chosen by a seed"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: 2)")
    options = parser.parse_args(arguments)
    for module in options.modules:
        if module not in TESTS:
            parser.error(f"{module} has no row in tests/mutation/table.py; these have: {', '.join(TESTS)}")
    os.chdir(ROOT)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.devnull
    for name in IMPORTS:
        importlib.import_module(name)
    totals = [0, 0, 0]
    for module in options.modules or TESTS:
        for at, count in enumerate(_try_all(module, options.sample, options.workers)):
            totals[at] += count
    print(
        f"together: {totals[0]} mutants, {totals[1]} survive, of which {totals[2]} are known to be equivalent"
    )
    return 1 if totals[1] > totals[2] else 0


def _try_all(module: str, sample: int | None, workers: int) -> tuple[int, int, int]:
    before = _child_seconds()
    if not survivors(module, [None], seconds=600, workers=1):
        raise SystemExit(f"{module}: its tests fail without a mutant: pytest {' '.join(TESTS[module])}")
    seconds = 5 + int(2 * (_child_seconds() - before))
    tried = list(mutants(module))
    if sample is not None and sample < len(tried):
        tried = random.Random(0).sample(tried, sample)
    passed = [mutant for mutant in survivors(module, tried, seconds=seconds, workers=workers) if mutant]
    equivalent = [mutant for mutant in passed if mutant.is_known]
    print(f"{module}: {len(tried)} mutants, {len(passed)} survive, {len(equivalent)} known to be equivalent")
    for mutant in passed:
        if not mutant.is_known:
            print(f"  {module}:{mutant.number}\n    - {mutant.before}\n    + {mutant.after}")
    sys.stdout.flush()
    return len(tried), len(passed), len(equivalent)


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
