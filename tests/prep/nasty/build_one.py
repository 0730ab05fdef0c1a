"""Build a folder: ``build_one.py FOLDER OUT OPTIONS``, with the image options as JSON."""

from __future__ import annotations

import json
import sys

from tfshards.prep import ImageFolder, ImageOptions, Options, build

if __name__ == "__main__":
    folder, out, options = sys.argv[1:]
    source = ImageFolder(folder, images=ImageOptions(**json.loads(options)))
    build(source, out, shards=2, options=Options(max_rejected=1), engine="local", log=lambda _: None)
