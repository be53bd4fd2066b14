"""Who gives a command, as this machine knows them."""

import os
import pwd


def who_acts() -> str:
    """Their name, or their number where it has none, as in a container that runs under any id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
