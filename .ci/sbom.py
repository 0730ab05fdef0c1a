"""Write a software bill of materials: ``sbom.py FILE [EXTRA]``, by default with all extras.

The wheel is built and installed into a clean environment, as a user would; cyclonedx-py lists what is in
it, with versions, licenses and what requires what, as CycloneDX 1.6, and validates it. uv fetches it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
CYCLONEDX = "cyclonedx-bom==7.5.0"


def main(output: str, extra: str = "all") -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", cwd=ROOT)
        (wheel,) = (folder / "dist").glob("*.whl")
        python = folder / "env" / "bin" / "python"
        run(UV, "venv", "-q", "--python", sys.executable, folder / "env")
        run(UV, "pip", "install", "-q", "--python", python, f"{wheel}[{extra}]")
        command = [UV, "tool", "run", "-q", "--from", CYCLONEDX, "cyclonedx-py", "environment"]
        options = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible"]
        run(*command, *options, "--output-file", Path(output).absolute(), python)


def run(*command: object, cwd: Path | None = None) -> None:
    """Run a command without the modules of a clone on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
