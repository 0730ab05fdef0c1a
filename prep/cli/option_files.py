"""Add to a command line the options of a TOML file and, for builds, those that a manifest records."""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from tfshards.prep.planning.options import Options
from tfshards.prep.sources.kind import Recorded
from tfshards.prep.sources.registry import KINDS
from tfshards.schemas import InputError, Manifest, OptionsError, read_manifest
from tfshards.schemas.files import local_path
from tfshards.schemas.option import changed_values
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole

_MOST_DOTS = 1000
_SHOWN = 100
# The flags that say where options come from, or that are no options.
_NO_KEYS = ("help", "config")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options: keys are the names of flags, such as resize = 'short=256'; flags on the "
        "command line replace them",
    )


def read_config(path: str) -> dict[str, object]:
    """Return the content of a TOML file.

    Raises:
        InputError: the file cannot be read.
        OptionsError: it is not valid TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        # of the extra, which commands without a file of options do not need
        import tomli as tomllib

    file = local_path(path)
    try:
        text = read_whole(file, OPTIONS).decode("utf-8")
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            # a key of many parts takes the square of their number
            raise ValueError(f"a line has more than {_MOST_DOTS:,} dots")
        content: dict[str, object] = tomllib.loads(text)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    except RecursionError:
        raise OptionsError("config-too-deep", path=path) from None
    except ValueError as error:
        # of TOML, or of UTF-8
        raise OptionsError("config-not-toml", path=path, error=error) from None
    return content


def key_of(action: argparse.Action) -> str:
    """Return the key of an argument in a file: its flag without dashes, or the name of a positional one."""
    return action.option_strings[-1].lstrip("-") if action.option_strings else action.dest


def keys_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the arguments of a parser by their key."""
    return {key_of(action): action for action in parser._actions if key_of(action) not in _NO_KEYS}


def check_keys(keys: Collection[str], known: Collection[str], path: str) -> None:
    """Raise OptionsError if a key is not the name of an argument."""
    for key in keys:
        if key not in known:
            hint = close_to(key.replace("_", "-"), known) or "the keys are the names of flags"
            raise OptionsError("config-key-unknown", path=path, key=_shown(key), hint=hint)


def close_to(word: str, known: Collection[str]) -> str | None:
    """Return the question whether a known word that is like an unknown one was meant."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else None


def arguments_of(action: argparse.Action, value: object, place: str) -> list[str]:
    """Return the arguments that give a value to an option or a positional argument.

    Args:
        action: the argument.
        value: its value; where the flag is repeatable also a list, or a table if the flag is ``NAME=VALUE``.
        place: file and key, for messages.

    Raises:
        OptionsError: the value has another type, or is not one of the choices.
    """
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise _mistake(place, value, "true or false")
        return [action.option_strings[-1]] if value else []
    texts = list(_texts(action, value, place))
    return [f"{action.option_strings[-1]}={text}" for text in texts] if action.option_strings else texts


def _texts(action: argparse.Action, value: object, place: str) -> Iterator[str]:
    is_repeatable = isinstance(action, argparse._AppendAction) or action.nargs == "+"
    has_names = is_repeatable and "=" in str(action.metavar)
    allowed = _allowed(action, is_repeatable=is_repeatable, has_names=has_names)
    if is_repeatable and isinstance(value, list):
        values = value
    elif has_names and isinstance(value, Mapping):
        for name, each in value.items():
            if not _is_scalar(action, each):
                raise _mistake(f"{place}.{name}", each, _allowed(action))
            yield f"{name}={each}"
        return
    else:
        values = [value]
    for each in values:
        if not _is_scalar(action, each) or (action.choices and str(each) not in action.choices):
            raise _mistake(place, value, allowed)
        yield str(each)


def _is_scalar(action: argparse.Action, value: object) -> bool:
    if isinstance(value, bool):
        return False
    if action.type is int:
        return isinstance(value, int)
    return isinstance(value, (int, float) if action.type is float else (str, int, float))


def _allowed(action: argparse.Action, *, is_repeatable: bool = False, has_names: bool = False) -> str:
    if action.choices:
        return f"one of {', '.join(map(str, action.choices))}"
    single = "a number" if action.type is float else "text or a number"
    if action.type is int:
        single = "an integer"
    more = ", a list of these" if is_repeatable else ""
    return f"{single}{more}{', or a table' if has_names else ''}"


def _mistake(place: str, value: object, allowed: str) -> OptionsError:
    return OptionsError("config-value", place=place, found=_shown(value), allowed=allowed)


def _shown(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read_build(dataset: str) -> Manifest:
    """Return the manifest of a dataset that one build made from its source.

    Raises:
        InputError: there is no dataset, or the manifest records no options of a build.
    """
    manifest = read_manifest(dataset)
    kind = manifest.options.get("source")
    if kind not in KINDS:
        raise InputError("records-no-options", dataset=dataset, kind=kind or "another program")
    return manifest


def recorded_options(
    manifest: Manifest, dataset: str, inputs: Sequence[str], keys: Mapping[str, argparse.Action]
) -> dict[str, object]:
    """Return the options of a build that are not the defaults, by their keys in a file of options.

    Args:
        manifest: manifest of the dataset, see ``read_build``.
        dataset: folder of the dataset, whose class names the new one is to have.
        inputs: the source of the new dataset and, for a table, the folder of its images if it is given.
        keys: the arguments by their keys.
    """
    given = manifest.options
    recorded = Recorded(manifest.schema, given, is_grown=False, follow_links=False, log=_ignore)
    options: dict[str, object] = {
        **KINDS[str(given["source"])]().recorded(recorded, inputs),
        **changed_values(Options, given),
        "compression": None if manifest.compression == "none" else manifest.compression,
        "seed": given["seed"] or None,
        "shards": given["shards"],
        "class_names_from": dataset if manifest.schema.class_names else None,
        "name": manifest.name,
    }
    key_of_dest = {action.dest: key for key, action in keys.items()}
    found = {key_of_dest[name]: value for name, value in options.items() if value not in (None, ())}
    # an empty mapping of folders is given as an empty text
    return {key: list(value) if isinstance(value, tuple) else value or "" for key, value in found.items()}


def taken_text(
    dataset: str, manifest: Manifest, taken: Mapping[str, object], keys: Mapping[str, argparse.Action]
) -> str:
    """Return the line that reports which options come from a dataset."""
    flags = [
        _typed(argument) for key, value in taken.items() for argument in arguments_of(keys[key], value, key)
    ]
    num_appends = len(manifest.made.appends)
    grown = f"; of its first build, without {num_appends} appends" if num_appends else ""
    return f"options of {dataset}{grown}: {' '.join(flags) or 'the defaults'}"


def _typed(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    return f"{flag} {shlex.quote(value)}" if equals else flag


def _ignore(_: str) -> None:
    """Drop a status line."""


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

    An option on the command line takes precedence over ``--config``, and ``--config`` over ``--from``.
    Positional arguments of the file are used if they are not on the command line.

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
