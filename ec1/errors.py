"""The errors that EC1 raises on purpose.

Each message is one line that says what is wrong, where, and what to do. Programming mistakes are not in here:
they stay ordinary exceptions with a traceback.
"""


class EC1Error(Exception):
    """Base of every error whose message is meant for a person."""


class InputError(EC1Error):
    """A configuration, recipe or argument is wrong; nothing was started."""


class RejectedError(EC1Error):
    """One piece of input (a document, a tuple) cannot be used. The message is the reason that is recorded."""


class DeferredError(EC1Error):
    """Work could not be finished now and will be tried again on a later night."""


class SkippedError(DeferredError):
    """Work was not begun because an operator switched off what it needs. It waits for a later night."""


class PermanentError(EC1Error):
    """Retrying cannot help: a contract was broken or an artefact is damaged."""


class DamagedError(PermanentError):
    """The disk does not hold what was written there. Whoever can build it again does; else the message says how."""


class DiskError(PermanentError):
    """The disk is full, read-only or failing. What is on it is not known to be damaged."""


class BusyError(EC1Error):
    """Another process holds what is needed (the GPU lease, the graph's writer lock) and did not release it in time."""


class ServiceError(EC1Error):
    """A service that we depend on does not answer as agreed."""


def one_line(said: object) -> str:
    """What somebody else says of an error, on one line of 500 characters at most."""
    return " ".join(str(said).split())[:500]
