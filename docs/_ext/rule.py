"""The ``rule`` directive and role: one numbered promise of the contract.

::

    .. rule:: R-LOOP-21

       What holds, in a sentence or two.

gives the rule an anchor, an index entry and a target for ``:rule:`R-LOOP-21```. With the option
``:doc:`` the rule only documents, and no test has to prove it. An id that stands on two pages, and
a reference to an id that stands on none, are warnings, and so errors in this project's builds.
"""

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.std import GenericObject
from sphinx.util.typing import ExtensionMetadata, OptionSpec


class Rule(GenericObject):
    """A rule of the contract."""

    option_spec: ClassVar[OptionSpec] = {**GenericObject.option_spec, "doc": directives.flag}
    indextemplate = "rule; %s"

    def handle_signature(self, sig: str, signode: addnodes.desc_signature) -> str:
        """Show the id, and that no test proves it where that is so."""
        signode += addnodes.desc_name(sig, sig)
        if "doc" in self.options:
            note = " (documentation only)"
            signode += addnodes.desc_annotation(note, "", nodes.Text(note))
        return sig


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive and the role to the standard domain."""
    # This gives the domain its object type and the role; its own directive takes no option.
    app.add_object_type("rule", "rule", objname="rule")
    app.add_directive_to_domain("std", "rule", Rule, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
