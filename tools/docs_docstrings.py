"""Docstrings as the reference pages want them; see `extensions` in mkdocs.yml."""

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Show doctests as code and Sphinx roles as plain names."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring; the parser knows the section only by its plural."""
        if obj.docstring is not None:
            text = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
            obj.docstring.value = re.sub(
                r":(?:class|meth|func|mod|attr):`~?([\w.]+)`",
                lambda match: f"`{match[1].rsplit('.', 1)[-1]}`",
                text,
            )
