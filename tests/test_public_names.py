"""The public names of the package, with their signatures, are those in ``public_names.txt``.

A change of this file is a change of the interface, and belongs in the changelog. To write it again:

    python tests/test_public_names.py > tests/public_names.txt
"""

import inspect
import re
from difflib import unified_diff
from importlib import import_module
from pathlib import Path

GOLDEN = Path(__file__).with_name("public_names.txt")
MODULES = ("tfshards", "tfshards.prep", "tfshards.loader", "tfshards.schemas")


def test_public_names_and_signatures_are_those_in_the_file():
    expected, found = GOLDEN.read_text().splitlines(), list(public_names())
    differences = "\n".join(unified_diff(expected, found, "public_names.txt", "tfshards", lineterm="", n=0))
    assert not differences, f"{differences}\nthe docstring of this module has the command that accepts it"


def public_names():
    """Yield a line for each public name of the modules, and for each member of a public class."""
    for module in MODULES:
        found = import_module(module)
        for name in sorted(found.__all__):
            yield from described(f"{module}.{name}", getattr(found, name))


def described(path: str, value: object):
    if inspect.isclass(value):
        yield f"class {path}{bases(value)}{constructor(value)}"
        for name, member in sorted(members(value).items()):
            yield from described(f"    {path.rpartition('.')[2]}.{name}", member)
    elif isinstance(value, property):
        yield f"{path}: {value.fget.__annotations__['return']}"
    elif isinstance(value, (classmethod, staticmethod)):
        yield f"{path}{signature(value.__func__)}"
    elif inspect.isfunction(value):
        yield f"{path}{signature(value)}"
    elif inspect.ismodule(value):
        yield path
    else:
        yield f"{path}: {type(value).__name__}"


def bases(of: type) -> str:
    names = ", ".join(base.__name__ for base in of.__bases__ if base is not object)
    return f"[{names}]" if names else ""


def constructor(of: type) -> str:
    is_plain_error = issubclass(of, Exception) and "__init__" not in vars(of)
    return "" if is_plain_error else signature(of).partition(" -> ")[0]


def members(of: type) -> dict[str, object]:
    """Return the public methods and properties defined by a class, or by a base class of this package.

    Methods such as ``on_epoch_end`` are left out: Keras calls them, not a user.
    """
    ours = [base for base in reversed(of.__mro__) if base.__module__.partition(".")[0] == "tfshards"]
    theirs = {name for base in of.__mro__ if base not in ours for name in vars(base)}
    return {
        name: member
        for base in ours
        for name, member in vars(base).items()
        if not name.startswith(("_", "on_", "set_"))
        and name not in theirs
        and (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod)))
    }


def signature(called: object) -> str:
    """Return a signature with annotations as they are written, and only the name of a default function."""
    found = inspect.signature(called)
    parameters = [
        parameter.replace(annotation=as_written(parameter.annotation))
        for parameter in found.parameters.values()
    ]
    found = found.replace(parameters=parameters, return_annotation=as_written(found.return_annotation))
    return re.sub(r"<function (\S+) at 0x\w+>", r"\1", str(found))


def as_written(annotation: object) -> object:
    text = getattr(annotation, "__forward_arg__", annotation)
    return Written(text) if isinstance(text, str) else annotation


class Written(str):
    """An annotation, printed without the quotes of a string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


if __name__ == "__main__":
    print(*public_names(), sep="\n")
