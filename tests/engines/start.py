"""Run an engine until Ctrl-C, and print the pipeline options for a build on it.

From the top of the repository: ``python -m tests.engines.start ENGINE``, with one of the names in engines.py.
"""

import argparse
import threading
from contextlib import suppress
from pathlib import Path

from .engines import ENGINES


def main() -> None:
    """Run the engine that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--logs", type=Path, default=Path("logs"), help="folder for logs (default: logs)")
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt), ENGINES[arguments.engine](arguments.logs.absolute()) as engine:
        print(
            f"{arguments.engine} runs. Build on it with\n  tfshards build ... -- {' '.join(engine.options)}"
        )
        threading.Event().wait()


if __name__ == "__main__":
    main()
