"""The verb ``adopt``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.arguments import add_options, values_of
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import FormatError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser, "folder of TFRecord files, plain or compressed with gzip")
    from tfshards.prep.adoption.manifest import AdoptOptions
    from tfshards.prep.adoption.seen import FeatureRoles

    for record in (AdoptOptions, FeatureRoles):
        add_options(parser, record)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing manifest of other files or options"
    )


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.adoption.manifest import AdoptOptions
    from tfshards.prep.adoption.seen import FeatureRoles

    roles = FeatureRoles(**values_of(args, FeatureRoles))
    options = AdoptOptions(**values_of(args, AdoptOptions), roles=roles)
    try:
        manifest = adopt(args.dataset, options, overwrite=args.overwrite)
    except FormatError as error:
        error.max_listed = len(error.problems)
        raise
    return Result.of_manifest(manifest)


ADOPT = Verb("adopt", "write a manifest for existing TFRecord files", _add_arguments, _run)
