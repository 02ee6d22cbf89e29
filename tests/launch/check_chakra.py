"""Traces of all processes of a plan: dependencies come first, sends meet receives of equal size,
every group's members do the same collectives in the same order. Reads the wire format by itself."""

import collections
import json
import pathlib
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = data[at : at + 8], at + 8
        else:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        yield key >> 3, value


def messages(data):
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        yield data[at : at + length]
        at += length


def node_of(message):
    node = {"waits": [], "attributes": {}}
    for number, value in fields(message):
        if number == 1:
            node["id"] = value
        elif number == 2:
            node["name"] = value.decode()
        elif number == 3:
            node["type"] = value
        elif number in (4, 5):
            node["waits"].append(value)
        elif number == 10:
            inner = list(fields(value))
            node["attributes"][inner[0][1].decode()] = inner[1][1]
    node.setdefault("id", 0)
    return node


def by_algorithm(plan, groups, collectives):
    """Data parallel plans of equal hosts: the communication of process 0, by the algorithm of the buckets."""
    algorithm = plan["buckets"][0]["algorithm"]
    members = plan["stages"][0]["replicas"]
    per_host = len([d for d in plan["cluster"]["vertices"] if d["kind"] == "device" and d["host"] == "host-0"])
    mine = [(groups[g], row) for g, rows in collectives.items() for row in rows.get(0, [])]
    all_reduce, all_gather, reduce_scatter = 0, 2, 7
    inside = [sum(size for group, (kind, size) in mine if kind == k and group == list(range(per_host))) for k in (7, 2)]
    across = sum(size for group, (kind, size) in mine if kind == 0 and group == list(range(0, members, per_host)))
    payload = sum(b["gradient_bytes"] for b in plan["buckets"])
    if algorithm == "hierarchical":
        assert inside[0] == payload and across == inside[1] == sum(-(-b["gradient_bytes"] // per_host) for b in plan["buckets"])
        assert len(mine) == 3 * len(plan["buckets"])
    elif algorithm in ("parameter-server", "block-manager"):
        assert [(group, row) for group, row in mine if row[0] == all_reduce] == []
        assert sum(size for group, (kind, size) in mine if kind == reduce_scatter and len(group) == members) == payload
        assert len(mine) == 2 * len(plan["buckets"]) == 2 * len([0 for _, row in mine if row[0] == all_gather])
    else:
        assert {row[0] for _, row in mine} == {all_reduce} and sum(row[1] for _, row in mine) == payload


def main():
    folder = pathlib.Path(sys.argv[1])
    groups = {k: v for k, v in json.loads((folder / "comm_group.json").read_text()).items()}
    transfers = collections.Counter()
    collectives = collections.defaultdict(dict)
    nodes = 0
    processes = len(list(folder.glob("trace.*.et")))
    for process in range(processes):
        seen = set()
        operations = 0
        for message in list(messages((folder / f"trace.{process}.et").read_bytes()))[1:]:
            node = node_of(message)
            nodes += 1
            assert set(node["waits"]) <= seen, (process, node)
            seen.add(node["id"])
            a = node["attributes"]
            if node["type"] in (5, 6):
                mine, sign = ("comm_src", 1) if node["type"] == 5 else ("comm_dst", -1)
                assert a[mine] == process, (process, node)
                transfers[(a["comm_src"], a["comm_dst"], a["comm_tag"], a["comm_size"])] += sign
            elif node["type"] == 7:
                group = a["pg_name"].decode()
                assert process in groups[group], (process, node)
                rows = collectives[group].setdefault(process, [])
                rows.append((a["comm_type"], a["comm_size"]))
            elif node["name"].split()[0] in ("forward", "backward", "recompute"):
                # a reader with a roofline converts these to times; looking up embeddings is no
                # operation
                operations += a["num_ops"]
                assert a["tensor_size"] > 0, (process, node)
        assert operations > 0, process
    assert not [k for k, n in transfers.items() if n], "sends and receives differ"
    for group, rows in collectives.items():
        assert set(rows) == set(groups[group]), f"group {group}: {sorted(rows)}"
        assert len({tuple(r) for r in rows.values()}) == 1, f"group {group} differs"
    if len(sys.argv) > 2:
        by_algorithm(json.loads(pathlib.Path(sys.argv[2]).read_text()), groups, collectives)
    print(f"{processes} processes, {nodes} nodes, {len(transfers)} transfers, {len(collectives)} groups")
    assert processes > 1 and nodes > processes and (transfers or collectives)


main()
