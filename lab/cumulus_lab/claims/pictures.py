"""A claim's numbers as a picture, by matplotlib."""

from __future__ import annotations

from pathlib import Path

from cumulus_lab.claims.claims import ClaimFound, PaperClaim

_INCHES = (7.0, 4.5)


def draw_claim(claim: PaperClaim, found: ClaimFound, path: Path) -> None:
    """Draw what was measured as points, and what was computed as lines, with the claim above."""
    from matplotlib.figure import Figure

    across, up, by = claim.axes
    picture = Figure(figsize=_INCHES, layout="constrained")
    axes = picture.subplots()
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in found.rows:
        groups.setdefault((str(row.get(by, "")), str(row.get("kind", "measured"))), []).append((row[across], row[up]))
    colours: dict[str, str] = {}
    for (name, kind), points in sorted(groups.items()):
        colour = colours.setdefault(name, f"C{len(colours)}")
        label = " ".join(filter(None, (name, kind if kind != name else "")))
        if kind == "measured":
            axes.scatter(*zip(*points, strict=True), label=label, color=colour)
        else:
            axes.plot(*zip(*sorted(points), strict=True), label=label, color=colour)
    if claim.is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel(across.replace("_", " "))
    axes.set_ylabel(up.replace("_", " "))
    axes.set_title(f"“{claim.says}” ({claim.source})", fontsize="small", wrap=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    picture.savefig(path)
