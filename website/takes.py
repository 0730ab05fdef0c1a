"""Let the site show the parameters of functions that take the fields of a dataclass of options.

``takes`` in loader/options/load_options.py derives them at run time; the site does not import the loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe

_POSITIONAL = griffe.ParameterKind.positional_or_keyword


class Takes(griffe.Extension):
    """Replace the parameter ``options`` of a function decorated with ``takes(Options)``."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """Change the functions of a package once it is read."""
        for function in functions_of(pkg):
            names = [
                str(decorator.value.arguments[0])
                for decorator in function.decorators
                if isinstance(decorator.value, griffe.ExprCall) and str(decorator.value.function) == "takes"
            ]
            for name in names:
                classes = [*dataclasses_of(function.module[name])]
                fields = [field for each in classes for field in fields_of(each)]
                required = [
                    field for field in fields if field.kind is griffe.ParameterKind.positional_or_keyword
                ]
                function.parameters = griffe.Parameters(*required, *(f for f in fields if f not in required))
                if function.docstring is not None:
                    text = "\n".join(attributes_of(each) for each in classes)
                    function.docstring.value = function.docstring.value.replace("{options}", text.strip())


def functions_of(module: griffe.Module) -> Iterator[griffe.Function]:
    """Yield the functions of a module and of the modules in it."""
    for member in module.members.values():
        if isinstance(member, griffe.Function):
            yield member
        elif isinstance(member, griffe.Module):
            yield from functions_of(member)


def dataclasses_of(found: Any) -> Iterator[griffe.Class]:  # noqa: ANN401 -- a class or an alias of one
    """Yield a dataclass, then its bases."""
    one = found.final_target if found.is_alias else found
    yield one
    for base in one.bases:
        if str(base) != "NamedTuple":
            yield from dataclasses_of(one.module[str(base)])


def fields_of(one: griffe.Class) -> Iterator[griffe.Parameter]:
    """Yield the fields that a dataclass itself has, as parameters."""
    is_keyword = "kw_only=True" in " ".join(str(decorator.value) for decorator in one.decorators)
    for name, member in one.members.items():
        if not isinstance(member, griffe.Attribute):
            continue
        if "KW_ONLY" in str(member.annotation):
            is_keyword = True
        elif member.annotation is not None and "property" not in member.labels:
            chosen = griffe.ParameterKind.keyword_only if is_keyword else _POSITIONAL
            yield griffe.Parameter(name, annotation=member.annotation, kind=chosen, default=member.value)


def attributes_of(one: griffe.Class) -> str:
    """Return the documentation of the fields of a dataclass, indented as in a section of arguments."""
    text = one.docstring.value if one.docstring else ""
    return text.partition("Attributes:\n")[2].partition("\n\n")[0]
