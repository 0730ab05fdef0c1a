"""Build one folder under several options: ``build_all.py FOLDER OUT`` with the options as JSON on stdin."""

from __future__ import annotations

import json
import sys

from tfshards.prep import ImageFolder, ImageOptions, Options, build

if __name__ == "__main__":
    folder, out = sys.argv[1:]
    for name, options in json.load(sys.stdin).items():
        source = ImageFolder(folder, images=ImageOptions(**options))
        build(source, f"{out}/{name}", shards=2, options=Options(max_rejected=1), talk=lambda _: None)
