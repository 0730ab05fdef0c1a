"""Derive the arguments of a command from a function: its signature, its annotations and its docstring.

A parameter is an argument if the docstring describes it and a text can give its value. The flag is its name,
the help its description. A parameter whose type is a dataclass of options stands for the options in it.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tfshards.schemas import OptionsError

# Filled from what follows a bare --.
BEAM_ARGS = "beam_args"
# A section of a docstring, and the entries of the sections that describe parameters.
_SECTION = re.compile(r"^(?:Args|Attributes|Returns|Raises|Yields):$", re.MULTILINE)
_PARAMETERS = re.compile(r"^(?:Args|Attributes):\n((?: .*\n?|\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)


def description_of(described: object) -> str:
    """Return the text of a docstring before its first section."""
    return plain(_SECTION.split(inspect.cleandoc(described.__doc__ or ""))[0].strip())


def parameters_of(described: object) -> dict[str, str]:
    """Return the descriptions of the parameters of a function, or of a dataclass and its base classes."""
    found: dict[str, str] = {}
    for each in reversed(inspect.getmro(described)) if inspect.isclass(described) else [described]:
        for section in _PARAMETERS.findall(inspect.cleandoc(each.__doc__ or "")):
            found |= {name: plain(" ".join(text.split())) for name, text in _ENTRY.findall(section)}
    return found


def plain(text: str) -> str:
    """Return text of a docstring with code in quotation marks."""
    return re.sub(r'``"?(.*?)"?``', r'"\1"', text)


@dataclass(frozen=True)
class Form:
    """How texts give a value of a type.

    Attributes:
        parse: returns the value of a text, or one of several; raises ArgumentTypeError with the reason.
        collect: returns the value of all texts of an argument that is repeatable, None if it is not.
        metavar: placeholder in the help.
        choices: the allowed values, if they are few.
    """

    parse: Callable[[str], Any]
    collect: Callable[[list[Any]], Any] | None = None
    metavar: str | None = None
    choices: tuple[object, ...] = ()


def form_of(hint: object) -> Form | None:
    """Return how texts give a value of a type; of a union, of the first type that they can give."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        found = next(filter(None, map(form_of, inner)), None)
        is_path = found and found.parse is str and any(get_origin(each) is os.PathLike for each in inner)
        return replace(found, metavar="PATH") if found and is_path else found
    if metavar := getattr(hint, "METAVAR", None):
        # a class that reads several texts by itself
        return Form(str, hint.parse, metavar)  # type: ignore[attr-defined]
    if origin is Literal:
        values = {str(value): value for value in inner}
        return Form(lambda text: values.get(text, text), choices=inner)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        value = form_of(inner[1])
        return value and _named(value)
    if inspect.isclass(origin) and issubclass(origin, Collection):
        item = form_of(inner[0])
        return item and Form(item.parse, tuple, item.metavar, item.choices)
    if hint in (int, float):
        return Form(partial(_number, hint), metavar="N")
    return Form(str) if hint in (str, Any, os.PathLike) or origin is os.PathLike else None


def _number(kind: type[int] | type[float], text: str) -> float:
    try:
        # int() also reads the digits of other scripts
        return kind(text if text.isascii() else "")
    except ValueError:
        article = "a whole" if kind is int else "a"
        raise argparse.ArgumentTypeError(f"{text!r} is not {article} number") from None


def _named(value: Form) -> Form:
    def parse(text: str) -> tuple[str, Any] | None:
        # a path may contain "=", and so may the name of what has one of a few roles
        name, equals, rest = text.rpartition("=") if value.choices else text.partition("=")
        if not text:
            return None
        if not equals:
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        found = value.parse(rest)
        if value.choices and found not in value.choices:
            choices = ", ".join(map(str, value.choices))
            raise argparse.ArgumentTypeError(f"{text!r}: invalid choice: {rest!r} (choose from {choices})")
        return name, found

    return Form(parse, lambda pairs: dict(filter(None, pairs)), "NAME=VALUE")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        call: for a dataclass of options, how it is made.
        form: for any other, how texts give its value; None for bool.
    """

    name: str
    help: str
    default: object
    form: Form | None
    call: Call | None = None

    def add_to(self, parser: argparse._ActionsContainer, metavar: str | None) -> None:
        """Add the argument to a parser; it is positional if there is a ``metavar``."""
        # argparse fills in what follows a percent sign
        flag, text = f"--{self.name.replace('_', '-')}", self.help.rstrip(".").replace("%", "%%")
        given: dict[str, Any] = {"help": text}
        short = [f"-{self.name[0]}"] if self.name in ("quiet", "verbose") else []
        if self.form is None:
            parser.add_argument(*short, flag, action="store_true", **given)
            return
        parse = self.form.parse
        given |= {"type": parse, "choices": self.form.choices or None}
        is_required = self.default is inspect.Parameter.empty
        if metavar:
            several = "+" if self.form.collect else None
            check = partial(not_empty, hint="; the working directory is ." * (self.form.metavar == "PATH"))
            given |= {"metavar": metavar, "nargs": several if is_required else "?", "type": check}
            parser.add_argument(self.name, **given)
            return
        if self.form.collect:
            given |= {"action": "append", "help": f"{text}; repeatable"}
        if "empty" not in self.help:
            # where an empty text means something, the help says what
            given["type"] = lambda text: parse(not_empty(text))
        if not is_required and self.default not in (None, (), "") and "default" not in text:
            shown = f"{self.default:,}" if isinstance(self.default, int) else str(self.default)
            given["help"] += f" (default: {shown})".replace("%", "%%")
        given["metavar"] = self.form.metavar or (None if self.form.choices else self.name.upper())
        parser.add_argument(*short, flag, required=is_required, **given)

    def value_of(self, given: object) -> object:
        """Return the value of the argument, given by the parser.

        Raises:
            OptionsError: a name of NAME=VALUE is given twice.
        """
        if self.form is None or self.form.collect is None or not isinstance(given, list):
            return given
        names = [item[0] for item in given if isinstance(item, tuple)]
        for name in names:
            if names.count(name) > 1:
                raise OptionsError(f"{self.name}={name} is given twice", code="usage")
        return self.form.collect(given)


def _or_none(parse: Callable[[str], Any], text: str) -> object:
    return None if text == "none" else parse(text)


def not_empty(text: str, hint: str = "") -> str:
    """Return a text, or raise ArgumentTypeError if it is empty, as a variable that is not set may be."""
    if not text:
        raise argparse.ArgumentTypeError(f"it is empty{hint}")
    return text


def _group(parser: argparse.ArgumentParser, title: str) -> argparse._ActionsContainer:
    groups = {group.title: group for group in parser._action_groups}
    return groups.get(title) or parser.add_argument_group(title)


@dataclass(frozen=True)
class Call:
    """A call of a function with arguments of a command line."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], made: Mapping[str, Callable[..., Any]] | None = None) -> Call:
        """Return the call of a function; ``made`` makes some of its arguments from arguments of their own."""
        hints, helps = get_type_hints(function), parameters_of(function)
        found: list[Parameter] = []
        for each in inspect.signature(function).parameters.values():
            hint = hints[each.name]
            members = [one for one in get_args(hint) or (hint,) if one is not NoneType]
            options = [one for one in members if is_dataclass(one) and not hasattr(one, "METAVAR")]
            # options make a group of arguments where no text can stand for them
            maker: Any = (made or {}).get(each.name) or (None if form_of(hint) else next(iter(options), None))
            call, form = (Call.of(maker), None) if maker else (None, form_of(hint))
            # of a dataclass, a factory makes it
            default = None if repr(each.default) == "<factory>" else each.default
            if form and NoneType in get_args(hint) and default not in (None, inspect.Parameter.empty):
                form = replace(form, parse=partial(_or_none, form.parse))
            is_argument = each.name in helps and each.name != BEAM_ARGS
            if is_argument and (call or form or members == [bool]):
                found.append(Parameter(each.name, helps[each.name], default, form, call))
        return cls(function, tuple(found))

    @property
    def takes_beam_args(self) -> bool:
        """Whether pipeline options of Apache Beam are an argument."""
        return BEAM_ARGS in inspect.signature(self.function).parameters

    def add_to(
        self, parser: argparse.ArgumentParser, positional: Sequence[str], left_out: Sequence[str] = ()
    ) -> None:
        """Add the arguments of the call to a parser; those of options form groups.

        Args:
            parser: the parser.
            positional: parameters that are positional arguments, in addition to the first one.
            left_out: parameters that are not arguments.
        """
        for each in self.parameters:
            is_positional = each is self.parameters[0] or each.name in positional
            metavar = each.name.upper() if is_positional else None
            if each.call is None:
                each.add_to(parser, metavar)
                continue
            for title, one in each.call._all():
                if one.name not in left_out:
                    is_required = one.default is inspect.Parameter.empty
                    one.add_to(
                        parser if is_required else _group(parser, title), metavar if is_required else None
                    )

    def _all(self) -> Iterator[tuple[str, Parameter]]:
        """Yield the arguments of a call that makes an argument, each with the name of what it belongs to."""
        for each in self.parameters:
            yield from each.call._all() if each.call else [(self.function.__name__, each)]

    def run(self, given: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Call the function with those of its arguments that are given."""
        values: dict[str, Any] = {}
        for each in self.parameters:
            if each.call:
                values[each.name] = each.call.run(given)
            elif each.name in given:
                values[each.name] = each.value_of(given[each.name])
            elif each.default is inspect.Parameter.empty:
                # a file of options, which might have given it, has not
                flag = each.name.replace("_", "-")
                raise OptionsError(f"the following arguments are required: --{flag}", code="usage")
        if self.takes_beam_args:
            values[BEAM_ARGS] = given[BEAM_ARGS]
        return self.function(**values)
