"""Lets a process of root obey permissions, as those of other users do.

It stays the user that it is, and so it still imports a package that only root may read.
"""

import ctypes
import os

# linux/capability.h and linux/prctl.h
_CAPABILITIES = (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH) = (1, 2)
_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP = 24
# loaded before a fork, after which little is safe
_LIBC = ctypes.CDLL(None, use_errno=True)


def obey_permissions() -> None:
    """Give up the capabilities that let root read and write every file, here and in processes started here.

    For the argument ``preexec_fn`` of ``subprocess``, and for a process that was forked.
    """
    if os.geteuid() != 0:
        return
    for capability in _CAPABILITIES:
        # a program that root executes gets all capabilities of the bounding set
        _check(_LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    # effective, permitted and inheritable, in two words each: of the lower ones, then of the upper ones
    sets = (ctypes.c_uint32 * 6)()
    _check(_LIBC.capget(header, sets))
    for index in range(3):
        sets[index] &= ~sum(1 << capability for capability in _CAPABILITIES)
    _check(_LIBC.capset(header, sets))


def _check(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
