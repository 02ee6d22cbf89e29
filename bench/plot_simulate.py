#!/usr/bin/python3
"""Draws results of bench_simulate: CPU time over classes and over devices.

    build/release/bench_simulate >results.json && bench/plot_simulate.py results.json docs/images/simulation_cost.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, GAP = 900, 380, 60, 50, 40, 70
PANEL = (WIDTH - 2 * LEFT - GAP) // 2


def ticks(low, high):
    return [10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def panel(x0, title, x_name, points, out):
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(min(ys), 0.01), max(max(ys), 10))
    height = HEIGHT - TOP - BOTTOM

    def place(value, marks, length):
        low, high = math.log10(marks[0]), math.log10(marks[-1])
        return (math.log10(value) - low) / (high - low) * length

    out.append(f'<text x="{x0 + PANEL / 2}" y="22" class="title">{title}</text>')
    for mark in x_ticks:
        x = x0 + place(mark, x_ticks, PANEL)
        out.append(f'<path d="M{x:.1f} {TOP}v{height}" class="grid"/>')
        out.append(f'<text x="{x:.1f}" y="{TOP + height + 18}" class="mark">{mark:,.0f}</text>')
    for mark in y_ticks:
        y = TOP + height - place(mark, y_ticks, height)
        out.append(f'<path d="M{x0} {y:.1f}h{PANEL}" class="grid"/>')
        out.append(f'<text x="{x0 - 8}" y="{y + 4:.1f}" class="mark" text-anchor="end">{mark:g}</text>')
    out.append(f'<text x="{x0 + PANEL / 2}" y="{HEIGHT - 10}" class="title">{x_name}</text>')
    line = ""
    for x_value, y_value in points:
        x = x0 + place(x_value, x_ticks, PANEL)
        y = TOP + height - place(y_value, y_ticks, height)
        line += f'{"L" if line else "M"}{x:.1f} {y:.1f}'
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        out.append(f'<text x="{x:.1f}" y="{y - 9:.1f}" class="value">{y_value:.2g} s</text>')
    out.append(f'<path d="{line}" class="line"/>')


def main():
    rows = json.load(open(sys.argv[1]))["rows"]
    by_class = sorted((r["classes"], r["cpu_s"]) for r in rows if r["name"] == "50 layers, odd ranks")
    by_device = sorted((r["devices"], r["cpu_s"]) for r in rows if r["fold"] == "yes" and r["resolution"] == "flow"
                       and r["classes"] == 1 and r["name"].startswith("50 layers"))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           "<style>text{fill:#333;text-anchor:middle}.mark{font-size:11px}.value{font-size:10px}.title{font-size:13px}"
           ".grid{stroke:#ddd;fill:none}.line{stroke:#1f6feb;fill:none;stroke-width:2}circle{fill:#1f6feb}"
           'text[text-anchor="end"]{text-anchor:end}</style>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    panel(LEFT, "4,096 devices, 50 layers: CPU seconds", "classes of ranks", by_class, out)
    panel(LEFT + PANEL + GAP, "One class, 50 layers: CPU seconds", "devices", by_device, out)
    out.append("</svg>")
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(out) + "\n")


main()
