# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How near the planner comes to real start-ups from public reports: figures by family, and every row left out.

    bench_planner.py [--rows] [--write]     --rows: each row with its error; --write: the table of docs/memory.md

(a) measured: the budget from the printed load figures against the printed pool
(b) cell:     bytes of a token from geometry, layout and version against printed bytes / tokens
(c) blind:    from board, geometry, weights and arguments alone against the printed pool
(d) dead:     every refused or dead start: does the plan refuse or warn, in the right direction?
(e) headroom: what is free when the server is ready, from printed load figures and from the board alone: is the printed
              figure inside the band? And what two starts of one configuration differ by: inside the noise?
headers:      processor time in which the headers of 200 shards are read

Ends with status 1 when a bound is missed. Data: tests/data/startups.yaml, geometry.yaml, bench.yaml.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import planner_headers
import tree
from planner_ends import dead, headroom, headroom_missed, incidents, noise
from planner_groups import (
    BLIND_BAND_SHARE,
    BLIND_MEDIAN_SHARE,
    MEASURED_GIB,
    MEASURED_ROWS,
    MEASURED_SHARE,
    blind,
    cells,
    measured,
    packed,
)
from planner_starts import starts

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_read import read_folder  # isort: skip

# ---------------------------------------------------------------------------
# Report
# ---------------------------------------------------------------------------


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def table(results, rows=False):
    """Print figures by family: rows, median, 90th percentile and worst of the error, in GiB and in tokens."""
    families = sorted({one.family for one in results})
    print(f"  {'family':<24} {'rows':>4} {'good':>4}  {'median':>17} {'90%':>19} {'worst':>19}")
    for family in families + (["all"] if len(families) > 1 else []):
        ours = [one for one in results if family in (one.family, "all")]
        gib = [abs(one.error_gib) for one in ours]
        tokens = [abs(one.error_tokens) for one in ours]
        figures = "  ".join(f"{pick(gib):6.3f} GiB {pick(tokens):8,.0f}" for pick in (statistics.median, _ninety, max))
        print(f"  {family:<24} {len(ours):>4} {sum(one.good for one in ours):>4}  {figures}")
    for one in results:
        if rows or not one.good:
            mark = "     " if one.good else "MISS "
            figure = f"{one.error_gib:+8.3f} GiB {one.error_tokens:+12,.0f}"
            print(f"    {mark}{one.id:<38} {figure}  {one.note}")


def _ninety(values):
    return percentile(values, 0.9)


def left_out(out):
    if out:
        print(f"  left out: {len(out)}")
    for name, why in out:
        print(f"    {name:<38} {why}")


def report(rows=False):
    """Print all groups; return the bounds that are missed, as sentences."""
    all_starts, boards, checkpoints = starts()
    missed = []

    complete, near, out = measured(all_starts)
    print("(a) measured: budget from printed load figures against the printed pool, complete rows")
    table(complete, rows)
    print("    rows with one load figure by difference, or without a version")
    table(near, rows)
    left_out(out)
    share = sum(one.good for one in complete) / len(complete)
    if share < MEASURED_ROWS:
        missed.append(f"(a) {share:.0%} of the complete rows within {MEASURED_GIB} GiB or {MEASURED_SHARE:.1%}")

    found, out = cells(all_starts)
    print("(b) cell: bytes of a token against printed bytes / tokens; good: within print rounding")
    table(found, rows)
    left_out(out)
    if not all(one.good for one in found):
        missed.append("(b) " + ", ".join(one.id for one in found if not one.good))

    found, told, out = blind(all_starts, boards, checkpoints)
    print("(c) blind: from board, geometry, weights and arguments; good: the bad end of the band is kept")
    table(found, rows)
    print("    rows whose board is not known: free before load as printed")
    table(told, rows)
    for how, ours in by_weights(found):
        print(f"    {how}: {len(ours)} rows")
        table(ours)
    error = statistics.median(abs(one.error_gib) / one.board_gib for one in found)
    band = statistics.median(one.band_gib / one.board_gib for one in found)
    print(f"  median error {error:.2%} of the board, median half band {band:.2%} of the board")
    left_out(out)
    if error >= BLIND_MEDIAN_SHARE or band > BLIND_BAND_SHARE or not all(one.good for one in found):
        kept = sum(one.good for one in found)
        missed.append(f"(c) error {error:.2%}, half band {band:.2%}, kept {kept} of {len(found)}")
    from_folder = packed(all_starts, boards, checkpoints)
    print("    packed for 4 bits, from the bytes of the folder instead of the printed weights; the band is wide before")
    print("    0.5.20, because the load leaves packed weights behind")
    table(from_folder, rows)
    if not all(one.good for one in from_folder):
        missed.append("(c) " + ", ".join(one.id for one in from_folder if not one.good) + " under the wide band")
    if not all(one.good for one in told):
        missed.append("(c) " + ", ".join(one.id for one in told if not one.good) + " under the band")

    found, out = dead(all_starts)
    found += incidents()
    print("(d) dead: refused or dead starts; good: infeasible at that fraction, with the direction")
    for one in found:
        print(f"    {'     ' if one.good else 'MISS '}{one.id:<38} {one.family:<6} {one.note}")
    left_out(out)
    wrong = [one.id for one in found if not one.good and one.family in ("raise", "incident")]
    if wrong:
        missed.append("(d) " + ", ".join(wrong))

    found, out = headroom(all_starts)
    print("(e) headroom when ready, from printed load figures; good: the printed figure is inside the band")
    table(found, rows)
    print("    from the board and weights as in (c)")
    from_board = headroom(all_starts, boards, checkpoints)[0]
    table(from_board, rows)
    pairs = noise()
    print("    two starts of one configuration; good: they differ by no more than the noise of both")
    for one in pairs:
        print(f"    {'     ' if one.good else 'MISS '}{one.id:<38} {one.note}")
    left_out(out)
    return missed + headroom_missed(found, from_board, pairs)


def by_weights(found):
    """Return [(where the weights come from, the results of (c))]."""
    sources = sorted({one.note.split(",")[0] for one in found})
    return [(how, [one for one in found if one.note.split(",")[0] == how]) for how in sources]


BEGIN, END = "<!-- begin bench -->", "<!-- end bench -->"
DOCS = tree.ROOT / "docs" / "memory.md"


def docs_table():
    """Return the table of docs/memory.md: each group by family."""
    all_starts, boards, checkpoints = starts()
    found, told, dummy = blind(all_starts, boards, checkpoints)
    groups = (
        ("a measured", measured(all_starts)[0]),
        ("a, one load figure by difference", measured(all_starts)[1]),
        ("b cell", cells(all_starts)[0]),
        ("c blind", found),
        *((f"c, {how}", ours) for how, ours in by_weights(found)),
        ("c, packed, bytes of the folder", packed(all_starts, boards, checkpoints)),
        ("c, free before load as printed", told),
        ("e headroom when ready", headroom(all_starts)[0]),
        ("e, from the board", headroom(all_starts, boards, checkpoints)[0]),
    )
    lines = ["| group | family | rows | good | median GiB (tokens) | 90% | worst |", "|---|---|---|---|---|---|---|"]
    for name, results in groups:
        families = sorted({one.family for one in results})
        for family in families + (["all"] if len(families) > 1 else []):
            ours = [one for one in results if family in (one.family, "all")]
            gib = [abs(one.error_gib) for one in ours]
            tokens = [abs(one.error_tokens) for one in ours]
            figures = [f"{pick(gib):.3f} ({pick(tokens):,.0f})" for pick in (statistics.median, _ninety, max)]
            cells_of = [name, family, str(len(ours)), str(sum(one.good for one in ours)), *figures]
            lines.append("| " + " | ".join(cells_of) + " |")
    died = dead(all_starts)[0] + incidents()
    for family in ("raise", "lower", "incident"):
        ours = [one for one in died if one.family == family]
        good = sum(one.good for one in ours)
        lines.append(f"| d dead, direction {family} | | {len(ours)} | {good} | | | |")
    error = statistics.median(abs(one.error_gib) / one.board_gib for one in found)
    band = statistics.median(one.band_gib / one.board_gib for one in found)
    last = f"Blind: median error {error:.2%} of the board, median half band {band:.2%} of the board."
    half = statistics.median(one.band_gib for one in headroom(all_starts)[0] if one.family == "own memory")
    last += f" Headroom: median half band {half:.2f} GiB on boards with memory of their own."
    return "\n".join([*lines, "", last])


def written(text):
    """Return the text of docs/memory.md with a fresh table."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{docs_table()}\n{END}{rest.split(END)[1]}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", action="store_true", help="each row with its error")
    parser.add_argument("--write", action="store_true", help="write the table of docs/memory.md")
    options = parser.parse_args(arguments)
    if options.write:
        DOCS.write_text(written(DOCS.read_text()))
    missed = report(options.rows)
    print("headers of a model folder")
    for line in planner_headers.lines(read_folder):
        print("  " + line)
    for one in missed:
        print("MISSED " + one)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
