"""Replace the parameters that messages of the library name by the flags of the command line."""

from __future__ import annotations

import argparse
import ast
import re
import shlex

from tfshards.schemas.errors import one_line

# A parameter and, directly after "=", the value that was found, as Python prints it.
_PARAMETER = re.compile(
    r"""(?<![^\s(])(?P<name>[a-z_]+)=
    (?P<value>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | \[[^\[\]]*\] | \([^()]*\)
            | \{(?:[^{}'"] | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")*\}
            | [^\s,;:()]*[^\s,;:().] | )""",
    re.VERBOSE,
)
# A flag at the end of a text.
_FLAG = re.compile(r"(?<!\S)--[a-z-]+ $")


def flags_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the flag of each parameter of a verb, or the metavar of a positional argument."""
    return {"beam_args": "--"} | {
        action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in parser._actions
        if action.dest != "help"
    }


def with_flags(message: str, parser: argparse.ArgumentParser) -> str:
    """Return a message in which each parameter of ``parser`` is its flag: ``shards=0`` is ``--shards 0``."""
    flags = flags_of(parser)

    def typed(match: re.Match[str]) -> str:
        flag = flags.get(match["name"])
        # the value of a flag may look like a parameter, as in --column split=label
        is_value = _FLAG.search(message, 0, match.start())
        return match[0] if flag is None or is_value else _as_typed(flag, match["value"])

    return _PARAMETER.sub(typed, message)


def _as_typed(flag: str, value: str) -> str:
    """Return a flag and its value, which is in Python's notation, as they are typed in a shell."""
    try:
        found = ast.literal_eval(value)
    except (SyntaxError, ValueError):
        found = value
    if value == "" or found is True:
        return flag
    if isinstance(found, dict):
        values = [f"{name}={number}" for name, number in found.items()] or [""]
    elif isinstance(found, (list, tuple)):
        values = [str(item) for item in found]
    else:
        values = [str(found) if isinstance(found, str) else value]
    typed = [one_line(shlex.quote(text)) for text in values]
    # unlike a flag, a positional argument, or the bare -- before the options of Beam, is not repeated
    is_repeated = flag.startswith("-") and flag != "--"
    return " ".join(f"{flag} {text}" for text in typed) if is_repeated else " ".join([flag, *typed])
