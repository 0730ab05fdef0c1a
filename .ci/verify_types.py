"""Check with ``basedpyright --verifytypes`` that every public symbol of tfshards has a type of its own.

Types of TensorFlow that ship without annotations make some symbols partially unknown, such as what ``load``
returns. They are counted, but only a symbol without an annotation in this repository is a fault.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Print how many symbols have a type, and each one that lacks an annotation; return the exit status."""
    binaries = Path(sys.executable).parent
    # Pyright looks for the package where the first python of PATH does.
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    command = [
        str(binaries / "basedpyright"),
        "--verifytypes",
        "tfshards",
        "--ignoreexternal",
        "--outputjson",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    missing = [
        f"{symbol['name']}: {diagnostic['message'].splitlines()[0]}"
        for symbol in symbols
        for diagnostic in symbol["diagnostics"]
        if "missing" in diagnostic["message"]
    ]
    known = sum(symbol["isTypeKnown"] for symbol in symbols)
    print(*missing, sep="\n", end="\n" if missing else "")
    print(f"{known:,} of {len(symbols):,} symbols are known; {len(missing)} lack an annotation of their own")
    return 1 if missing or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
