"""Find the reason of a failure in the text that a runner passes on, which may hold several tracebacks."""

from __future__ import annotations

import re

from tfshards.schemas import BuildError

# Runners pass a worker's traceback on as text, some of them quoted as JSON or Java do.
_RAISED = re.compile(r"(?:BuildError|InputError|OptionsError): (.+?)(?= \[while running|\\n|\n|$)")
_LACKS = re.compile(r"ModuleNotFoundError: (?:No module named '([\w.]+)'|images need (\S+):)")
# The functions of the pipeline belong to modules, so that another version of the package may lack them.
_DIFFERS = re.compile(
    r"(?:AttributeError: Can't get attribute|ImportError: cannot import name) .+?(?=\\n|\n|$)"
)

# of an error of gRPC, which the local runner does not use
_DETAILS = re.compile(r'\bdetails = "(.+)"')


def reason(failure: BaseException) -> str:
    """Return in one line why a pipeline failed, and the remedy if it is a worker's environment."""
    if isinstance(failure, BuildError):
        return str(failure)
    text = str(failure).strip()
    raised = _RAISED.findall(text)
    if raised:
        return str(raised[-1]).strip()
    lacks = _LACKS.search(text)
    if lacks:
        name = lacks[1] or lacks[2]
        return f"a worker cannot import {name}; install tfshards[prep] in the Python of every worker"
    differs = _DIFFERS.search(text)
    if differs:
        return f"a worker has another version of tfshards or Apache Beam than the command: {differs[0]}"
    details = _DETAILS.search(text)
    if details:
        return f"the job service cannot be reached any more: {details[1]}"
    last_line = text.splitlines()[-1:] or [type(failure).__name__]
    return f"Apache Beam ended the pipeline: {last_line[0]}"
