"""Outputs of tools as they are in life, from a seed, and the truth about each."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy


@dataclass(frozen=True, slots=True)
class Document:
    """What a tool gives back, and the answer to the question about it."""

    value: Any
    truth: str


_ATOMS: Final = ((0.0, 0.0, 0.0), (1.5, 0.2, -0.1), (2.1, -1.2, 0.3))  # C, C, O of ethanol, in angstrom
_NAMES: Final = ("Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine", "Rowan", "Willow")
_KINDS: Final = ("umbrella", "raincoat", "parasol", "poncho")
_HOSTS: Final = ("web-1", "web-2", "web-3", "api-1", "api-2", "queue-1")
_REGIONS: Final = ("north", "south", "east", "west")


def grid(seed: int, shape: tuple[int, int, int]) -> Document:
    """The electron density of a molecule on a grid, x by y by z, in e/angstrom^3; the question: where is its peak."""
    axes = [numpy.linspace(-4, 6, count) for count in shape]
    x, y, z = numpy.meshgrid(*axes, indexing="ij")
    density = numpy.random.default_rng(seed).uniform(0, 0.01, shape)
    for atom, (ax, ay, az) in enumerate(_ATOMS):
        density += (1 + 0.1 * atom) * numpy.exp(-((x - ax) ** 2 + (y - ay) ** 2 + (z - az) ** 2))
    density = density.round(4)
    return Document(density.tolist(), _peak(density))


def _peak(density: Any) -> str:
    at = numpy.unravel_index(int(density.argmax()), density.shape)
    return f"{density.max():.4f} at {', '.join(str(int(place)) for place in at)}"


def find_peak(values: list[Any]) -> str:
    """The highest density and where it is."""
    return _peak(numpy.array(values))


def search_results(seed: int, count: int) -> Document:
    """Results of a product search; the question: the cheapest umbrella that is rated 4.5 or better."""
    random = Random(seed)
    results = [
        {
            "position": at + 1,
            "title": f"{random.choice(_NAMES)} {kind} {random.randint(100, 999)}",
            "kind": kind,
            "url": f"https://shop.example.com/p/{random.getrandbits(40):x}",
            "price": random.randint(900, 9_900) / 100,
            "rating": random.randint(30, 50) / 10,
            "reviews": random.randint(1, 4_000),
            "snippet": f"Lightweight {kind} for every day, ships within {random.randint(1, 9)} days.",
        }
        for at, kind in enumerate(random.choice(_KINDS) for _ in range(count))
    ]
    results[random.randrange(count)].update(title="Tern umbrella 27", kind="umbrella", rating=4.7, price=8.5)
    return Document(results, cheapest(results))


def cheapest(results: list[dict[str, Any]]) -> str:
    """The cheapest umbrella that is rated 4.5 or better."""
    good = [result for result in results if result["kind"] == "umbrella" and result["rating"] >= 4.5]
    best = min(good, key=lambda result: result["price"])
    return f"{best['title']} for {best['price']}"


def log(seed: int, count: int) -> Document:
    """A service log; the question: which order failed, and on which host. One line tells it."""
    random = Random(seed)
    lines = []
    failed = random.randrange(count // 4, count)
    truth = ""
    for at in range(count):
        host, order = random.choice(_HOSTS), random.randint(10_000, 99_999)
        stamp = f"2026-11-{1 + at // 86_400:02}T{at // 3_600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z"
        if at == failed:
            lines.append(f"{stamp} {host} ERROR payment declined order={order} code=insufficient_funds")
            truth = f"order {order} on {host}"
        else:
            lines.append(f"{stamp} {host} INFO order={order} accepted in {random.randint(2, 900)} ms")
    return Document("\n".join(lines) + "\n", truth)


def failed_order(text: str) -> str:
    """The order that failed, and its host."""
    line = next(line for line in text.splitlines() if " ERROR " in line)
    return f"order {line.split('order=')[1].split()[0]} on {line.split()[1]}"


def page(seed: int, count: int) -> Document:
    """A page with a table of substances; the question: the CAS number of the one with the highest boiling point."""
    random = Random(seed)
    boiling = random.sample(range(300, 300 + 10 * count), count)
    rows = [
        f"<tr><td>{random.choice(_NAMES).lower()}-{at}</td><td>{random.randint(50, 9_999)}-{random.randint(10, 99)}-"
        f"{random.randint(0, 9)}</td><td>{boiling[at]} K</td></tr>"
        for at in range(count)
    ]
    html = (
        "<!doctype html>\n<html><head><title>Substances</title></head><body>\n<table>\n<thead><tr><th>Name</th><th>CAS"
        "</th><th>Boiling point</th></tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody></table>\n</body></html>\n"
    )
    return Document(html, highest_boiling(html))


def highest_boiling(html: str) -> str:
    """The CAS number of the substance with the highest boiling point."""
    rows = [line.split("</td><td>") for line in html.splitlines() if line.startswith("<tr><td>")]
    return max(rows, key=lambda row: int(row[2].split()[0]))[1]


def substance(html: str, row: int) -> tuple[str, str]:
    """Name and CAS number in a row of the page."""
    line = [line for line in html.splitlines() if line.startswith("<tr><td>")][row]
    name, cas, _ = line.removeprefix("<tr><td>").split("</td><td>")
    return name, cas


def cas_number(text: str, name: str) -> str:
    """The CAS number beside a name, in the page or a part of it."""
    return text.split(f">{name}</td><td>")[1].split("<")[0]


def sales(seed: int, count: int) -> Document:
    """A CSV export; the question: the amount of all sales in the west."""
    random = Random(seed)
    lines = ["date,order,region,item,quantity,amount"]
    for at in range(count):
        quantity = random.randint(1, 9)
        lines.append(
            f"2026-10-{1 + at % 31:02},{random.randint(10_000, 99_999)},{random.choice(_REGIONS)},"
            f"{random.choice(_NAMES).lower()} {random.choice(_KINDS)},{quantity},{quantity * random.randint(9, 99)}"
        )
    text = "\n".join(lines) + "\n"
    return Document(text, west(text))


def west(csv: str) -> str:
    """The amount of all sales in the west."""
    rows = [line.split(",") for line in csv.splitlines()]
    return str(sum(int(row[5]) for row in rows if row[2] == "west"))
