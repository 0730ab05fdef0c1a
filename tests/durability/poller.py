"""Reads a dataset repeatedly without a pause, like a program that does not know when it is replaced.

``poller.py OUT`` prints a line for each build that it finds, and at the end of standard input how
often it has read the dataset. If it cannot read the dataset, it prints ``torn`` and the reason.
"""

import sys
import threading

from tfshards.prep import verify
from tfshards.schemas import TfshardsError, read_manifest
from tfshards.schemas.manifest_file import file_problems

if __name__ == "__main__":
    out = sys.argv[1]
    seen, looks = "", 0
    reader = threading.Thread(target=sys.stdin.read)
    reader.start()
    is_last = False
    while not is_last:
        # what was replaced just before the end is seen too
        is_last = not reader.is_alive()
        try:
            manifest = read_manifest(out)
            problems = file_problems(manifest, out)
            # also the bytes, but not each time; after a kill, views wait for the next command
            if not problems and looks % 10 == 0:
                problems = [one for one in verify(out).problems if one.place not in manifest.views]
        except TfshardsError as error:
            problems = [str(error)]
        if problems:
            print(f"torn {problems[0]}", flush=True)
        elif manifest.build_id != seen:
            seen = manifest.build_id
            print(seen, flush=True)
        looks += 1
    print(looks, flush=True)
