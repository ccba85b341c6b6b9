"""Names and descriptions as bodies of REST requests carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakemirror.service.rest.rest_answers import invalid
from lakemirror.service.workspace_names import is_display_name

MOST_DESCRIPTION = 256  # characters


def display_name(body: Mapping[str, Any]) -> str | None:
    """The display name that a body gives a mirrored database; None for none. Refused 400."""
    name = body.get("displayName")
    if name is not None and (not isinstance(name, str) or not is_display_name(name)):
        raise invalid("displayName has 1 to 123 letters, digits and underscores, inside also spaces, dots and hyphens.")
    return name


def description_of(body: Mapping[str, Any]) -> str | None:
    """The description in a body; None for none. Refused 400."""
    description = body.get("description")
    if description is not None and (not isinstance(description, str) or len(description) > MOST_DESCRIPTION):
        raise invalid(f"description is a text of at most {MOST_DESCRIPTION} characters.")
    return description
