"""Add to a command line the options of a TOML file and, for builds, those that a manifest records."""

from __future__ import annotations

import argparse
import copy
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfshards.prep.planning.options import Options
from tfshards.prep.sources.kind import Recorded
from tfshards.prep.sources.registry import KINDS
from tfshards.schemas import InputError, Manifest, OptionsError, read_manifest
from tfshards.schemas.files import local_path
from tfshards.schemas.option import changed_values
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole

_MOST_DOTS = 1000
_SHOWN = 100
# Flags that name the source of options, or that are not options.
_NO_KEYS = ("help", "config", "recorded")
# Options that say the same thing, in addition to those which the parser excludes.
_RIVALS = ({"shards", "shard-size"},)
# The recorded options that an option replaces, since it decides them.
_DECIDES = {"for-training": {"resize", "jpeg-quality"}}


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options: keys are the names of flags, such as resize = 'short=256'; flags on the "
        "command line replace them",
    )


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


@dataclass(frozen=True)
class Expanded:
    """A command line with the options of files, and by flag where each of these comes from."""

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
    before, kinds = [arguments[0]], subcommands(commands[arguments[0]])
    early = type(parser)(prog=commands[before[0]].prog, add_help=False, allow_abbrev=False)
    # after KIND, tables have another option --from
    is_early = bool(kinds) and not {*arguments[1:2]} & {*kinds}
    (add_from if is_early else add_config)(early)
    found, rest = early.parse_known_args(arguments[1:])
    path, dataset = str(found.config or ""), str(getattr(found, "recorded", None) or "")
    if not path and not dataset:
        return Expanded([*arguments])
    config = _read_config(path) if path else {}
    manifest = _read_build(dataset) if dataset else None
    own, others = commands[before[0]], []
    if kinds:
        if manifest is not None:
            kind = str(manifest.options["source"])
        else:
            kind = rest.pop(0) if rest and rest[0] in kinds else _kind_in(path, config, [*kinds])
        before, own = [*before, kind], kinds[kind]
        # a file of options serves build and plan
        others = [subcommands(each)[kind] for each in commands.values() if kind in subcommands(each)]
    keys = keys_of(own)
    for key in config:
        if key not in {"kind", *keys, *(each for other in others for each in keys_of(other))}:
            raise OptionsError("config-key-unknown", path=path, key=_value_text(key))
    given, positionals = _given(own, rest)
    positional = [key for key, action in keys.items() if not action.option_strings]
    if positionals and all(key in config for key in positional):
        config = {key: value for key, value in config.items() if key not in positional}
    replaced = _replaced(given, own)
    values = {key: (path, config[key]) for key in config if key in keys and key not in replaced}
    line = ""
    if manifest is not None:
        inputs = [str(config["source"])] if "source" in config else positionals[:1]
        root = given.get("root", config.get("root"))
        recorded = _recorded(manifest, dataset, [*inputs, *([] if root is None else [str(root)])], keys)
        replaced = _replaced_records({**given, **{key: value for key, (_, value) in values.items()}}, own)
        taken = {key: (dataset, value) for key, value in recorded.items() if key not in replaced}
        line = _taken_text(dataset, manifest, _arguments(taken, keys, [*taken]))
        values = {**taken, **values}
    flags = [key for key in values if keys[key].option_strings]
    added = (_arguments(values, keys, some) for some in (positional[:1], flags, positional[1:]))
    first, options, last = added
    origins = {keys[key].option_strings[-1]: values[key][0] for key in flags}
    return Expanded([*before, *first, *options, *rest, *last], origins, line)


def _read_config(path: str) -> dict[str, object]:
    """Return the content of a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        # of the extra, which commands without a file of options do not need
        import tomli as tomllib

    try:
        text = read_whole(local_path(path), OPTIONS).decode("utf-8")
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


def _kind_in(path: str, config: Mapping[str, object], kinds: Sequence[str]) -> str:
    kind = config.get("kind")
    if kind is None:
        raise OptionsError("config-no-kind", path=path, kinds=kinds)
    if not isinstance(kind, str) or kind not in kinds:
        raise OptionsError("config-kind", path=path, kind=kind, kinds=kinds)
    return kind


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def keys_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the arguments of a parser by their keys: flags without dashes, names of positional ones."""
    return {
        action.option_strings[-1].lstrip("-") if action.option_strings else action.dest: action
        for action in parser._actions
        if action.dest not in _NO_KEYS
    }


def arguments_of(action: argparse.Action, value: object, place: str) -> list[str]:
    """Return the arguments that give a value to an option or a positional argument; argparse checks them.

    Args:
        action: the argument.
        value: its value; where the flag is repeatable also a list, or a table if the flag is ``NAME=VALUE``.
        place: file and key, for messages.
    """
    if action.nargs == 0 and isinstance(value, bool):
        return [action.option_strings[-1]] if value else []
    is_repeatable = isinstance(action, argparse._AppendAction) or action.nargs == "+"
    has_names = is_repeatable and "=" in str(action.metavar)
    values = [*value] if is_repeatable and isinstance(value, (list, tuple)) else [value]
    names = [""] * len(values)
    if has_names and isinstance(value, Mapping):
        values, names = [*value.values()], [f"{name}=" for name in value]
    are_scalars = all(isinstance(each, (str, int, float)) and not isinstance(each, bool) for each in values)
    if action.nargs == 0 or not are_scalars:
        several = (", a list of these" if is_repeatable else "") + (", or a table" if has_names else "")
        allowed = "true or false" if action.nargs == 0 else f"text or a number{several}"
        raise OptionsError("config-value", place=place, found=_value_text(value), allowed=allowed)
    flag = f"{action.option_strings[-1]}=" if action.option_strings else ""
    return [f"{flag}{name}{each}" for name, each in zip(names, values, strict=True)]


def _arguments(
    values: Mapping[str, tuple[str, object]], keys: Mapping[str, argparse.Action], some: Sequence[str]
) -> list[str]:
    """Return the arguments for some of the values, which are given with their origins."""
    found = [(key, *values[key]) for key in some if key in values]
    return [
        text for key, origin, value in found for text in arguments_of(keys[key], value, f"{origin}: {key}")
    ]


def _value_text(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _read_build(dataset: str) -> Manifest:
    """Return the manifest of a dataset that one build made from its source."""
    manifest = read_manifest(dataset)
    kind = manifest.options.get("source")
    if kind not in KINDS:
        raise InputError("records-no-options", dataset=dataset, kind=kind or "another program")
    return manifest


def _recorded(
    manifest: Manifest, dataset: str, inputs: Sequence[str], keys: Mapping[str, argparse.Action]
) -> dict[str, object]:
    """Return the options of a build that are not the defaults, by their keys in a file of options."""
    given = manifest.options
    recorded = Recorded(manifest.schema, given, is_grown=False, follow_links=False)
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
    # an empty mapping of folders is given as an empty text
    return {key_of_dest[name]: value or "" for name, value in options.items() if value not in (None, ())}


def _taken_text(dataset: str, manifest: Manifest, arguments: Sequence[str]) -> str:
    """Return the line that reports which options come from a dataset."""
    parts = (argument.partition("=") for argument in arguments)
    typed = [f"{flag} {shlex.quote(value)}" if equals else flag for flag, equals, value in parts]
    num_appends = len(manifest.made.appends)
    grown = f"; of its first build, without {num_appends} appends" if num_appends else ""
    return f"options of {dataset}{grown}: {' '.join(typed) or 'the defaults'}"


def _given(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """Return the options on a command line by their key, and the positional arguments."""
    probe = type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)
    keys = {key: action for key, action in keys_of(parser).items() if action.option_strings}
    for key, action in keys.items():
        own = copy.copy(action)
        own.dest, own.default, own.required = key, argparse.SUPPRESS, False
        probe._add_action(own)
    found, others = probe.parse_known_args(arguments)
    return vars(found), [other for other in others if not other.startswith("-")]


def _replaced(given: Mapping[str, object], parser: argparse.ArgumentParser) -> set[str]:
    """Return the keys of options that are given, and of those that exclude them."""
    by_dest = {action.dest: key for key, action in keys_of(parser).items()}
    groups = [
        {by_dest[action.dest] for action in group._group_actions}
        for group in parser._mutually_exclusive_groups
    ]
    return {*given}.union(*(group for group in [*groups, *_RIVALS] if group & {*given}))


def _replaced_records(given: Mapping[str, object], parser: argparse.ArgumentParser) -> set[str]:
    """Return the keys of recorded options that do not apply, since options are given."""
    return _replaced(given, parser).union(*(_DECIDES.get(key, ()) for key in given))
