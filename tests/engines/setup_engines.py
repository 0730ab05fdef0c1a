"""Fetch Beam's job server with the Flink in it, which tests run.

``python tests/engines/setup_engines.py [flink]`` fetches what is missing into
~/.cache/tfshards-engines, or into the folder in TFSHARDS_ENGINES. A step that was interrupted is done again;
one that is done is skipped.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# The newest release of Beam's Java runners of which every jar could be fetched.
BEAM_JAVA = "2.62.0"

_FLINK_JOB_SERVER = (
    f"org.apache.beam:beam-runners-flink-1.19:{BEAM_JAVA}",
    # without it, the job server logs nothing
    "org.slf4j:slf4j-simple:1.7.30",
)
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tfshards</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>"
)


def engines_folder() -> Path:
    """Return the folder of the engines; no file in it belongs to the repository."""
    return Path(os.environ.get("TFSHARDS_ENGINES") or Path.home() / ".cache" / "tfshards-engines")


def flink_job_server_jars() -> Path:
    """Return the folder of the jars of Beam's job server for Flink, which include an embedded Flink."""
    return engines_folder() / f"flink-job-server-{BEAM_JAVA}"


def set_up_flink() -> None:
    """Fetch Beam's job server with the Flink in it."""
    copy_jars(flink_job_server_jars(), _FLINK_JOB_SERVER)


STEPS: dict[str, Callable[[], None]] = {"flink": set_up_flink}


@contextmanager
def fetching(path: Path) -> Iterator[Path | None]:
    """Yield a new path to work at, or None if ``path`` exists; only one process at a time works on a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            yield None
            return
        partial = path.with_name(f".{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        print(f"{path.name}: fetching", flush=True)
        start = time.monotonic()
        yield partial
        shutil.rmtree(partial, ignore_errors=True)
        print(f"{path.name}: done in {time.monotonic() - start:.0f} s", flush=True)


def copy_jars(path: Path, coordinates: tuple[str, ...]) -> None:
    """Let Maven put these artifacts and all that they depend on into the folder."""
    with fetching(path) as partial:
        if partial:
            partial.mkdir()
            rows = [_DEPENDENCY.format(*each.split(":")) for each in coordinates]
            pom = _POM.format(name=path.name, dependencies="\n".join(rows))
            (partial / "pom.xml").write_text(pom)
            jars = partial / "jars"
            # fmt: off
            run("mvn", "--batch-mode", "--quiet", "--file", str(partial / "pom.xml"),
                "dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
            # fmt: on
            jars.rename(path)


def run(*command: str, **environment: str) -> None:
    """Run a command, and end with its output if it fails."""
    if not shutil.which(command[0]):
        raise SystemExit(f"{command[0]} is not installed, and this step needs it")
    result = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {result.returncode}\n{result.stdout[-4000:]}")


if __name__ == "__main__":
    for step in sys.argv[1:] or STEPS:
        STEPS[step]()
