"""Add to a command line the options of ``--config`` and, for ``build`` and ``plan``, those of ``--from``."""

from __future__ import annotations

import argparse
import copy
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tfshards.prep.cli.config_file import arguments_of, check_keys, keys_of, read_config
from tfshards.prep.cli.recorded import read_build, recorded_options, taken_text
from tfshards.schemas import Manifest, OptionsError

# Options that say the same thing, in addition to those which the parser excludes.
_RIVALS = ({"shards", "shard-size"},)


@dataclass(frozen=True)
class Expanded:
    """A command line with the options of files.

    Attributes:
        arguments: all arguments.
        origins: where each option that was not on the command line comes from, by its flag.
        line: line that reports what was taken from a dataset; empty if nothing was.
    """

    arguments: list[str]
    origins: Mapping[str, str] = field(default_factory=dict)
    line: str = ""

    def with_origin(self, message: str) -> str:
        """Return the message of an error, with the origin of the first option that it names."""
        for flag, origin in self.origins.items():
            if re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", message):
                return f"{message} ({flag} is from {origin})"
        return message


def expand(arguments: Sequence[str], parser: argparse.ArgumentParser) -> Expanded:
    """Return the command line with the options of the files that it names.

    An option on the command line replaces that of ``--config``, which replaces that of ``--from``. Positional
    arguments of the file are used if they are not on the command line.

    Raises:
        OptionsError: the file of options is invalid.
        InputError: a file cannot be read, or the dataset records no build.
    """
    commands = subcommands(parser)
    if not arguments or arguments[0] not in commands:
        return Expanded([*arguments])
    name, *rest = arguments
    kinds = subcommands(commands[name])
    if not kinds:
        return _expanded([name], rest, commands[name], lambda _: {}, others=[])
    manifest, dataset = None, None
    if rest and rest[0] in kinds:
        kind, *rest = rest
        # tables have an option of this name
        if "from" not in keys_of(kinds[kind]) and any(each.partition("=")[0] == "--from" for each in rest):
            raise OptionsError("kind-with-from", kind=kind, verb=name)
    else:
        early = _before_kind(commands[name])
        found, rest = early.parse_known_args(rest)
        dataset = found.recorded
        if dataset is not None:
            manifest = read_build(dataset)
            kind = str(manifest.options["source"])
            if rest and rest[0] in kinds and not os.path.exists(rest[0]):
                raise OptionsError("kind-with-from", kind=rest[0], verb=name)
        elif found.config is None:
            return Expanded([*arguments])
        elif rest and rest[0] in kinds:
            kind, *rest = rest
        else:
            kind = _kind_in(found.config, kinds)
        if found.config is not None:
            rest = [f"--config={found.config}", *rest]
    others = [subcommands(other)[kind] for other in commands.values() if kind in subcommands(other)]

    def recorded(inputs: Sequence[str]) -> dict[str, object]:
        if manifest is None or dataset is None:
            return {}
        return recorded_options(manifest, dataset, inputs, keys_of(kinds[kind]))

    return _expanded([name, kind], rest, kinds[kind], recorded, others, (dataset, manifest))


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def add_from(parser: argparse.ArgumentParser) -> None:
    """Add the options that may precede KIND, which then need not be given."""
    parser.add_argument(
        "--from",
        dest="recorded",
        metavar="DATASET",
        help="take KIND and all options from the manifest of this dataset: tfshards build --from DATASET "
        "SOURCE NEW; flags replace them",
    )
    parser.add_argument("--config", metavar="FILE", help="take options, and KIND, from a TOML file")


def _expanded(
    before: list[str],
    rest: list[str],
    parser: argparse.ArgumentParser,
    recorded: Callable[[Sequence[str]], Mapping[str, object]],
    others: Sequence[argparse.ArgumentParser],
    origin: tuple[str | None, Manifest | None] = (None, None),
) -> Expanded:
    keys = keys_of(parser)
    given, positionals = _given(parser, rest)
    path = given.pop("config", None)
    config = {} if path is None else read_config(str(path))
    check_keys(config, {*keys, *(key for other in others for key in keys_of(other)), "kind"}, str(path))
    positional = [key for key, action in keys.items() if not action.option_strings]
    if positionals and all(key in config for key in positional):
        required = [keys[key] for key in positional if keys[key].nargs not in ("?", "*")]
        if len(positionals) < len(required):
            names = " ".join(str(action.metavar) for action in required)
            raise OptionsError(
                "config-paths",
                path=path,
                join=" and ".join(positional),
                names=names,
                positionals=positionals[0],
            )
        config = {key: config[key] for key in config if key not in positional}
    inputs = [str(config["source"])] if "source" in config else positionals[:1]
    root = given.get("root", config.get("root"))
    dataset, manifest = origin
    taken = recorded([*inputs, *([] if root is None else [str(root)])])
    # what a later one gives replaces what an earlier one gives
    options = {key: config[key] for key in config if key in keys and key not in _replaced(given, parser)}
    taken = {key: taken[key] for key in taken if key not in _replaced({**given, **options}, parser)}
    places = {key: str(path) for key in options} | {key: str(dataset) for key in taken}
    values = {**taken, **options}
    found = {key: arguments_of(keys[key], values[key], f"{places[key]}: {key}") for key in values}
    head, tail = positional[:1], positional[1:]
    flags = [key for key in values if key not in positional]
    first, added, last = (
        [text for key in part for text in found.get(key, [])] for part in (head, flags, tail)
    )
    origins = {keys[key].option_strings[-1]: places[key] for key in flags}
    line = "" if dataset is None or manifest is None else taken_text(dataset, manifest, taken, keys)
    return Expanded([*before, *first, *added, *rest, *last], origins, line)


def _given(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """Return the options on a command line by their key, and the positional arguments."""
    probe = type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)
    keys = {key: action for key, action in keys_of(parser).items() if action.option_strings}
    config = [action for action in parser._actions if action.dest == "config"]
    for action in [*keys.values(), *config]:
        own = copy.copy(action)
        own.default, own.required = argparse.SUPPRESS, False
        probe._add_action(own)
    found, others = probe.parse_known_args(arguments)
    named = {action.dest: key for key, action in keys.items()} | {"config": "config"}
    values = {named[name]: value for name, value in vars(found).items()}
    return values, [other for other in others if not other.startswith("-")]


def _replaced(keys: Mapping[str, object], parser: argparse.ArgumentParser) -> set[str]:
    """Return the keys of options that are given, and of those that exclude them."""
    by_dest = {action.dest: key for key, action in keys_of(parser).items()}
    groups = [
        {by_dest[action.dest] for action in group._group_actions}
        for group in parser._mutually_exclusive_groups
    ]
    return {*keys}.union(*(group for group in [*groups, *_RIVALS] if group & {*keys}))


def _before_kind(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    early = type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)
    add_from(early)
    return early


def _kind_in(path: str, kinds: Mapping[str, object]) -> str:
    kind = read_config(path).get("kind")
    if kind is None:
        raise OptionsError("config-no-kind", path=path, kinds=[*kinds])
    if not isinstance(kind, str) or kind not in kinds:
        raise OptionsError("config-kind", path=path, kind=kind, kinds=[*kinds])
    return kind
