"""Compare errors by their class, and by the parts of their messages that matter: values, names, paths."""

from typing import Any

import pytest

from tfshards.schemas import TfshardsError


def raises(kind: type[TfshardsError], *parts: object, code: str | None = None) -> Any:
    """Expect an error of a class whose message has some parts.

    Args:
        kind: the class.
        parts: parts of the message; a tuple for several, so that tables can give them.
        code: the code, of errors that a program can act on.
    """
    wanted = [part for each in parts for part in (each if isinstance(each, tuple) else (each,))]

    def is_wanted(error: TfshardsError) -> bool:
        missing = [part for part in wanted if str(part) not in str(error)]
        # an assertion shows both sides, unlike False
        assert not missing, (missing, str(error))
        assert code is None or error.code == code, (error.code, str(error))
        return True

    return pytest.raises(kind, check=is_wanted)
