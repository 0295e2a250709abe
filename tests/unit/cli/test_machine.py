from __future__ import annotations

from hotset.cli.machine import cgroup_memory_limit, descriptor_limit, map_limit, total_memory


def tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def limit(tmp_path, cgroup, files):
    tree(tmp_path, {"proc/self/cgroup": cgroup} | {f"sys/{name}": text for name, text in files.items()})
    found = cgroup_memory_limit(tmp_path / "proc", tmp_path / "sys")
    return found and (found[0], str(found[1].relative_to(tmp_path / "sys")))


def test_the_smallest_limit_on_the_way_up_counts(tmp_path):
    files = {
        "memory.max": "max\n",
        "kube/memory.max": "4000\n",
        "kube/pod/memory.max": "max\n",
        "kube/pod/c/memory.max": "8000\n",
    }
    assert limit(tmp_path, "0::/kube/pod/c\n", files) == (4000, "kube/memory.max")


def test_a_container_that_sees_only_its_own_group(tmp_path):
    assert limit(tmp_path, "0::/of/the/host\n", {"memory.max": "500\n"}) == (500, "memory.max")


def test_version_1(tmp_path):
    cgroup = "11:cpu,cpuacct:/x\n9:memory:/docker/abc\n0::/x\n"
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/docker/abc/memory.limit_in_bytes": "700\n",
    }
    assert limit(tmp_path, cgroup, files) == (700, "memory/docker/abc/memory.limit_in_bytes")


def test_no_limit(tmp_path):
    assert limit(tmp_path, "0::/\n", {"memory.max": "max\n"}) is None
    assert cgroup_memory_limit(tmp_path / "nowhere", tmp_path / "nowhere") is None


def test_memory_of_the_machine(tmp_path):
    tree(tmp_path, {"meminfo": "MemFree:  1 kB\nMemTotal:       2048 kB\n"})
    assert total_memory(tmp_path) == 2 * 2**20


def test_this_machine_has_limits():
    assert total_memory() > 2**20
    assert descriptor_limit() > 2
    assert map_limit() > 1000
