"""YAML for frontmatters, by PyYAML (the extra ``yaml``).

A frontmatter comes from anywhere, so this reader takes less than PyYAML's safe one. It has no
aliases: ten lines of them stand for a billion values, and no author of a skill needs one. Dates
stay the texts that they are, and so do ``no`` and ``on``, as they do in newer versions of YAML.
The C parser is faster and is left alone: it recurses without a limit, and a file of brackets
would end the process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from harness._errors import MissingExtraError
from harness.skills._markdown import YAML

if TYPE_CHECKING:
    import yaml as pyyaml_module

__all__ = ["pyyaml"]

_LEFT_OUT: Final = (":bool", ":merge", ":timestamp")
_TRUTHS: Final = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")


def pyyaml() -> YAML:
    """Return the YAML functions of PyYAML.

    Raises:
        MissingExtraError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("yaml", error.name or "yaml") from error

    class Loader(yaml.SafeLoader):
        def compose_node(
            self, parent: pyyaml_module.Node | None, index: int
        ) -> pyyaml_module.Node | None:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # its stub is open
                raise yaml.composer.ComposerError(None, None, "an alias, expected none", mark)
            return super().compose_node(parent, index)

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

        def represent_str(self, data: str) -> pyyaml_module.ScalarNode:
            # PyYAML writes these bare, and then reads them as plain line ends.
            style = '"' if _LINE_ENDS.search(data) else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, Dumper.represent_str)

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if not pair[0].endswith(_LEFT_OUT)]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _TRUTHS, list("tTfF"))

    def load(text: str) -> object:
        value: object = yaml.load(text, Loader)
        return value

    def dump(value: object) -> str:
        return yaml.dump(value, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=10**9)

    return YAML(load=load, dump=dump)
