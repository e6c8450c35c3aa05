"""Layout of a room: small folders, one meaning for each name, imports without circles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from tests.rules.sources import Finding, Source

MODULES_PER_FOLDER = 16
SHARED_BASENAMES = {"__init__", "__main__", "base"}

Arrows = Mapping[str, Collection[str]]
"""Node -> the nodes that it imports."""


def layout_findings(room: str, sources: list[Source], product: Mapping[str, Source]) -> Iterator[Finding]:
    """Breaches of the layout rules in one room.

    Args:
        room: Name of the room.
        sources: Python files of the room.
        product: Every Python file of the product, by module name.
    """
    by_folder, by_name, by_class = defaultdict(list), defaultdict(list), defaultdict(list)
    for source in sources:
        path = PurePosixPath(source.path)
        if path.stem != "__init__":
            by_folder[str(path.parent)].append(path.stem)
        if path.stem not in SHARED_BASENAMES:
            by_name[path.stem].append(source.path)
        for name in source.public_classes:
            by_class[name].append(source.path)
    for folder, modules in by_folder.items():
        if len(modules) > MODULES_PER_FOLDER:
            yield Finding(
                folder, "modules", len(modules), f"at most {MODULES_PER_FOLDER} modules in a folder"
            )
    for rule, names in (("same-module-name", by_name), ("same-class-name", by_class)):
        for name, paths in names.items():
            if len(paths) > 1:
                yield Finding(f"{room}:{name}", rule, len(paths), ", ".join(paths))
    arrows = {source.path: _imported_files(source, product) for source in sources}
    yield from _circle_findings("circle-of-files", arrows)
    for folder in {str(parent) for path in arrows for parent in PurePosixPath(path).parents[:-1]}:
        yield from _circle_findings("circle-of-packages", _arrows_between_children(folder, arrows))


def _imported_files(source: Source, product: Mapping[str, Source]) -> set[str]:
    """Paths of the product's files that a file imports: the submodule if there is one, else the package."""
    found = {product.get(name) or product.get(name.rpartition(".")[0]) for name in source.imported_names}
    return {target.path for target in found if target is not None} - {source.path}


def _arrows_between_children(folder: str, arrows: Arrows) -> Arrows:
    """Imports between a folder's sub-packages, and between them and the folder's own modules."""

    def child(path: str) -> str:
        return "/".join(path.split("/")[: folder.count("/") + 2])

    within: dict[str, set[str]] = defaultdict(set)
    for path, targets in arrows.items():
        if path.startswith(f"{folder}/"):
            inside = {child(target) for target in targets if target.startswith(f"{folder}/")}
            within[child(path)] |= inside - {child(path)}
    return within


def _circle_findings(rule: str, arrows: Arrows) -> Iterator[Finding]:
    """One finding for each node from which imports lead back to it; counts its imports within that circle."""
    reached = {node: _reachable(node, arrows) for node in arrows}
    for node, nodes in reached.items():
        circle = {other for other in nodes if node in reached.get(other, ())}
        only_files = all(other.endswith(".py") for other in circle)
        if node in circle and not (rule == "circle-of-packages" and only_files):
            inside = sorted(set(arrows[node]) & circle)
            yield Finding(node, rule, len(inside), f"imports {', '.join(inside)}, which lead back to it")


def _reachable(start: str, arrows: Arrows) -> set[str]:
    seen: set[str] = set()
    to_visit = list(arrows[start])
    while to_visit:
        node = to_visit.pop()
        if node not in seen:
            seen.add(node)
            to_visit += arrows.get(node, ())
    return seen
