"""Draws what `quire simulate --report` found: one HTML page without outside references.

usage: plot.py DATA.json PAGE.html
"""
import html
import io
import json
import os
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "quire", "svg.fonttype": "path", "axes.grid": True,
                            "grid.alpha": 0.3, "figure.figsize": (8, 3.6),
                            "axes.spines.top": False, "axes.spines.right": False})
import matplotlib.pyplot as plt  # noqa: E402  (after the back end is chosen)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: 2px 8px; text-align: left;
border-bottom: 1px solid #ddd; vertical-align: top; } td.number { text-align: right; }
tr.missed td { background: #fdd; } svg { max-width: 100%; height: auto; }
"""


def svg_of(figure):
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg"):]


def table(headings, rows, classes=None):
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(h)}</th>" for h in headings) + "</tr>"]
    for i, row in enumerate(rows):
        cells = "".join(
            f'<td class="number">{cell:,.3f}</td>' if isinstance(cell, float)
            else f"<td>{html.escape(str(cell))}</td>" for cell in row)
        lines.append(f'<tr class="{classes[i] if classes else ""}">{cells}</tr>')
    return "\n".join(lines + ["</table>"])


def curves(systems, key, label):
    figure, axes = plt.subplots()
    for system in systems:
        if system[key]:
            seconds, share = zip(*system[key])
            axes.step(seconds, share, where="post", label=system["system"])
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlabel(f"{label} (s)")
    axes.set_ylabel("share of requests")
    axes.legend()
    return svg_of(figure)


def memory_over_time(system):
    figure, axes = plt.subplots()
    seconds, _, _, useful, reserved, capacity = zip(*system["timeline"])
    axes.fill_between(seconds, capacity, step="post", color="#eee", label="pool")
    axes.fill_between(seconds, reserved, step="post", color="#f4b183", label="reserved")
    axes.fill_between(seconds, useful, step="post", color="#2e75b6", label="useful")
    axes.set_xlabel("time (s)")
    axes.set_ylabel("token slots")
    axes.set_title(system["system"])
    axes.legend(loc="lower right")
    return svg_of(figure)


def sequences_over_time(systems):
    figure, axes = plt.subplots()
    for system in systems:
        if system["timeline"]:
            seconds, sequences, waiting, *_ = zip(*system["timeline"])
            line, = axes.plot(seconds, sequences, label=f'{system["system"]}: in the step')
            axes.plot(seconds, waiting, color=line.get_color(), linestyle=":",
                      label=f'{system["system"]}: waiting')
    axes.set_yscale("symlog")
    axes.set_xlabel("time (s)")
    axes.set_ylabel("sequences")
    axes.legend(fontsize=8)
    return svg_of(figure)


def paper_value(text):
    try:
        return float(text)
    except ValueError:
        return None


def paper_bars(group, rows):
    figure, axes = plt.subplots(figsize=(8, 0.8 + 0.34 * len(rows)))
    names = [row["row"].split("/", 1)[1] for row in rows]
    places = range(len(rows))
    axes.barh(places, [row["ours"] for row in rows], height=0.6,
              color=["#2e75b6" if row["pass"] else "#c00000" for row in rows], label="ours")
    known = [(i, paper_value(row["paper"])) for i, row in enumerate(rows)]
    known = [(i, value) for i, value in known if value is not None]
    if known:
        axes.plot([value for _, value in known], [i for i, _ in known], "kD", markersize=5,
                  label="paper")
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set_xlabel(rows[0]["unit"])
    if max(row["ours"] for row in rows) > 100:
        axes.set_xscale("log")
    axes.set_title(group)
    axes.legend(loc="lower right")
    return svg_of(figure)


def paper_page(rows):
    parts = []
    groups = {}
    for row in rows:
        groups.setdefault((row["row"].split("/")[0], row["unit"]), []).append(row)
    for (group, _), members in groups.items():
        parts.append(paper_bars(group, members))
    parts.append(table(["row", "paper", "ours", "unit", "bound", "pass", "note"],
                       [[row["row"], row["paper"], float(row["ours"]), row["unit"], row["bound"],
                         "yes" if row["pass"] else "NO", row["note"]] for row in rows],
                       ["" if row["pass"] else "missed" for row in rows]))
    return parts


def systems_page(systems):
    parts = [sequences_over_time(systems)]
    parts += [memory_over_time(system) for system in systems if system["timeline"]]
    parts += [curves(systems, "ttft_s", "time to first token"),
              curves(systems, "latency_s", "latency")]
    keys = [key for key, value in systems[0].items() if isinstance(value, (int, float))]
    parts.append(table([""] + [system["system"] for system in systems],
                       [[key] + [float(system[key]) for system in systems] for key in keys]))
    return parts


def main():
    data_path, page_path = sys.argv[1:]
    with open(data_path, encoding="utf-8") as file:
        data = json.load(file)
    parts = []
    if data["rows"]:
        parts += paper_page(data["rows"])
    if data["systems"]:
        parts += systems_page(data["systems"])
    title = html.escape(data["title"])
    page = (f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<style>{STYLE}</style>\n<h1>{title}</h1>\n" + "\n".join(parts) + "\n</html>\n")
    with open(page_path + ".part", "w", encoding="utf-8") as file:
        file.write(page)
    os.replace(page_path + ".part", page_path)


main()
