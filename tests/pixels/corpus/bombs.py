"""Normalize files whose images are far larger than the files, under a limit of address space.

``bombs.py FOLDER`` prints as JSON the outcome of each file by its name, and ``peak``: the maximum memory in
bytes.
"""

import json
import os
import resource
import sys
from pathlib import Path

from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.reasons import ImageError

ADDRESS_SPACE = 3 << 30

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    became: dict[str, object] = {}
    for path in sorted(Path(sys.argv[1]).iterdir()):
        try:
            normalize(path.read_bytes(), ImageOptions(), os.path.splitext(path.name)[1].lower().encode())
            became[path.name] = "accepted"
        except ImageError as error:
            became[path.name] = error.reason
    # ru_maxrss would count the process that started this one, which shares its memory until the exec
    status = Path("/proc/self/status").read_text("ascii")
    became["peak"] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    print(json.dumps(became))
