"""The reference of the command line, from the parser of the command."""

from __future__ import annotations

import argparse
import html

from tfshards.command import VERBS
from tfshards.prep.cli.parser import Parser, make_parser


def command_pages() -> str:
    """Return a page with a section for each verb and kind of source."""
    # the usage of argparse is as wide as the terminal otherwise
    parser = make_parser(VERBS, Parser.add_verb)
    parts = ["# Command line", str(parser.description)]
    for name, verb in _subcommands(parser).items():
        parts += [f"## tfshards {name}", *_section(verb)]
        for kind, own in _subcommands(verb).items():
            parts += [f"### tfshards {name} {kind}", *_section(own)]
    return "\n\n".join(parts) + "\n"


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def _section(parser: argparse.ArgumentParser) -> list[str]:
    rows = [_row(action, parser) for action in parser._actions if action.help and action.dest != "help"]
    table = ["| argument | meaning |", "| --- | --- |", *rows]
    commands = _subcommands(parser)
    listed = f"KIND is one of {', '.join(f'`{name}`' for name in commands)}." if commands else ""
    epilog = _text(parser.epilog or "")
    parts = [_text(parser.description or ""), f"    {_usage(parser)}", "\n".join(table), listed, epilog]
    return [part for part in parts if part]


def _usage(parser: argparse.ArgumentParser) -> str:
    positional = [action for action in parser._actions if not action.option_strings and action.help]
    names = [f"{action.metavar}{' ...' if action.nargs == '+' else ''}" for action in positional]
    optional = [
        f"[{name}]" if action.nargs == "?" else name for action, name in zip(positional, names, strict=True)
    ]
    return " ".join([parser.prog, *(optional or ["KIND", "..."]), "[OPTIONS]"])


def _row(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
    )
    flags = ", ".join(action.option_strings)
    shown = " ".join(filter(None, [flags, str(value) if action.nargs != 0 else ""])).replace("|", "&#124;")
    text = str(action.help) % {**vars(action), "prog": parser.prog}
    return f"| <code>{html.escape(shown).replace('&amp;#124;', '&#124;')}</code> | {_text(text)} |"


def _text(text: str) -> str:
    """Return text in which nothing is Markdown or HTML."""
    escaped = html.escape(text, quote=False).replace("|", "&#124;")
    for character in "\\*_`[]":
        escaped = escaped.replace(character, f"&#{ord(character)};")
    return escaped
