"""A YAML file that somebody wrote: its data, the line of everything in it, and keys that are there twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from .problems import BadFile, FileProblem, kind_of, read_text, shown

MAX_DEPTH: Final = 64
"""Levels of nesting: readers, and the writer of records, go down by recursion."""
MAX_VALUES: Final = 2_000_000
"""Values of a file, those behind an alias as often as it stands there: a few anchors may stand for billions."""
_MAX_DIGITS: Final = 40
"""Characters of an integer, in any base: none that is longer has 64 bits."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INTEGER_TAG: Final = "tag:yaml.org,2002:int"


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A file with a mapping in it."""

    path: Path
    data: dict[Any, Any]
    problems: tuple[FileProblem, ...]
    """Keys that are there twice, of which `data` has the last value."""
    _root: yaml.MappingNode

    @classmethod
    def read(cls, path: Path, kind: str) -> YamlFile:
        """Read a file; `kind` describes its kind: "a run is a YAML mapping with name, fabric and job".

        Raises:
            BadFile: The file is not YAML, or not a mapping.
        """
        text = read_text(path)
        try:
            loader = yaml.SafeLoader(text)
            root = loader.get_single_node()
            if root is not None:
                _check_size(root)
            twice = tuple(_keys_given_twice(root)) if root is not None else ()
            data = loader.construct_document(root) if root is not None else None
        except yaml.MarkedYAMLError as error:
            raise BadFile(f"{_at(error)}is not YAML: {_yaml_problem(error)}", place=str(path)) from None
        except yaml.reader.ReaderError as error:
            raise BadFile(
                f"is not text: character {error.position} is {error.character:#04x}", place=str(path)
            ) from None
        except RecursionError:
            raise BadFile("is not YAML: it is nested too deeply", place=str(path)) from None
        except (ValueError, yaml.YAMLError) as error:  # a date that no calendar has, a number beyond measure
            raise BadFile(f"is not YAML: {' '.join(str(error).split())}", place=str(path)) from None
        if data is None:
            raise BadFile(f"is empty; {kind}", place=str(path))
        if not isinstance(root, yaml.MappingNode):
            raise BadFile(f"{kind}; this is {kind_of(data)}", place=str(path))
        return cls(path, data, twice, root)

    def line(self, location: Sequence[str | int]) -> int | None:
        """Return the line of a value given by its keys and indexes, or of the innermost part that exists."""
        node: yaml.Node = self._root
        number: int | None = None
        for part in location:
            if isinstance(node, yaml.MappingNode):
                pair = next((pair for pair in node.value if pair[0].value == str(part)), None)
                if pair is None:
                    break
                number, node = pair[0].start_mark.line + 1, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                number = node.start_mark.line + 1
            else:
                break
        return number


def _check_size(root: yaml.Node) -> None:
    """Raise MarkedYAMLError for what takes time or memory without measure, before any value is made of it."""
    sizes: dict[int, tuple[int, int]] = {}  # by node: values and levels; levels 0: it is being counted
    left = [(root, False)]
    while left:
        node, counted = left.pop()
        children = _children(node)
        if counted:
            values = 1 + sum(sizes[id(child)][0] for child in children)
            levels = 1 + max((sizes[id(child)][1] for child in children), default=0)
            if values > MAX_VALUES:
                raise _refused(node, f"stands for more than {MAX_VALUES:,} values")
            if levels > MAX_DEPTH:
                raise _refused(node, f"is nested too deeply; {MAX_DEPTH} levels are the most")
            sizes[id(node)] = values, levels
            continue
        if id(node) in sizes:
            if sizes[id(node)] == (0, 0):
                raise _refused(node, "contains itself")
            continue
        if node.tag == _INTEGER_TAG and len(node.value) > _MAX_DIGITS:
            raise _refused(node, f"{shown(node.value)} is too long for an integer; they have 64 bits at most")
        if isinstance(node, yaml.ScalarNode) and not node.value.isascii() and _SURROGATE.search(node.value):
            raise _refused(node, f"{shown(node.value)} has half a surrogate pair, which is no character")
        sizes[id(node)] = 0, 0
        left.append((node, True))
        left += ((child, False) for child in children)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refused(node: yaml.Node, why: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=why, problem_mark=node.start_mark)


def _keys_given_twice(root: yaml.Node) -> Iterator[FileProblem]:
    """Duplicate keys in any mapping of the file; a plain loader silently keeps the last one."""
    left, visited = [root], {id(root)}
    while left:
        node = left.pop()
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            seen: set[tuple[str, str]] = set()
            for key, value in node.value:
                children.append(value)
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if (key.tag, key.value) in seen:
                        line = key.start_mark.line + 1
                        yield FileProblem(
                            f"{shown(key.value)} is given twice; give every key and node its own name", line
                        )
                    seen.add((key.tag, key.value))
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        left += [child for child in children if id(child) not in visited]
        visited.update(map(id, children))


def _at(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return "" if mark is None else f"line {mark.line + 1}: "


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(" ".join(part.split()) for part in (error.context, error.problem) if part)
