"""Links between pages: each one has a target, and docs/README.md links to every page. Prints those that fail."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
docs = root / "docs"
pages = [root / "README.md", *sorted(docs.rglob("*.md"))]


def anchors(page):
    """Anchors of headings, as on GitHub."""
    found, inside, seen = set(), False, {}
    for line in page.read_text().splitlines():
        inside ^= line.startswith("```")
        if inside or not re.match(r"#+ ", line):
            continue
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen[name] = seen.get(name, -1) + 1
        found.add(name if seen[name] == 0 else f"{name}-{seen[name]}")
    return found


def links(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.findall(r"\]\(([^)\s]+)\)", text)


wrong, count, reached = [], 0, set()
for page in pages:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        count += 1
        if page == docs / "README.md":
            reached.add(target)
        if not target.exists():
            wrong.append(f"{page.relative_to(root)}: {link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{page.relative_to(root)}: {link}: there is no such heading")
wrong += [f"docs/README.md: nothing leads to {page.relative_to(docs)}" for page in pages[1:]
          if page not in reached and page != docs / "README.md"]
print("\n".join(wrong) if wrong else f"{count} links")
sys.exit(bool(wrong) or count < 100)
