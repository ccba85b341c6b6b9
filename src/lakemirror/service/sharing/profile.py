"""Profile files: what a client of Delta Sharing needs to reach this service.

Source: Delta Sharing protocol, "Profile File Format".
"""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.service.auth.principals import Principals
from lakemirror.service.auth.tokens import Tokens

_PATH = "/delta-sharing"
_LONGEST = 36_500 * 86_400  # seconds; the end has a year of four digits


def write_profile(principals: Principals, name: str, to: Path, endpoint: str, lifetime: int) -> None:
    """Writes the profile file of a principal, with mode 0600. `lifetime`: in seconds.

    `endpoint`: scheme and host of the service. LakemirrorError `principal-missing`; `principal-invalid`: the file
    exists, or cannot be written.
    """
    principal = principals.by_name(name)
    if principal is None:
        raise LakemirrorError("principal-missing", f"there is no principal {name}")
    if not endpoint.startswith(("https://", "http://")) or not 1 <= lifetime <= _LONGEST:
        message = "--endpoint begins with https://, and --expires is over 0 and at most 36500d"
        raise LakemirrorError("principal-invalid", message)
    token, expiry = Tokens(principals.own / "keys").issue_for_sharing(principal, principals.tenant_id, lifetime)
    ends = datetime.datetime.fromtimestamp(expiry, datetime.timezone.utc)
    profile = {
        "shareCredentialsVersion": 1,
        "endpoint": endpoint.rstrip("/").removesuffix(_PATH) + _PATH,
        "bearerToken": token,
        "expirationTime": ends.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }
    try:
        handle = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise LakemirrorError("principal-invalid", f"{to} cannot be made: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(profile, file, indent=1)
        file.write("\n")
