import torch

from gaflow.models.free_memory import free_memory

MIB = 1 << 20


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def host(kib=4096, groups="0::/\n"):
    return {"proc/meminfo": f"MemTotal: 9999 kB\nMemAvailable: {kib} kB\n", "proc/self/cgroup": groups}


def test_free_memory_is_what_the_kernel_calls_available(tmp_path):
    assert free_memory("cpu", tree(tmp_path, host(kib=3))) == 3 * 1024


def test_control_groups_limit_it_less_what_they_use_and_can_take_back(tmp_path):
    group = "sys/fs/cgroup/box/inner"
    files = host(groups="0::/box/inner\n") | {
        f"{group}/memory.max": 3 * MIB,
        f"{group}/memory.current": 2 * MIB,
        f"{group}/memory.stat": "anon 7\ninactive_file 1000\n",
    }
    assert free_memory("cpu", tree(tmp_path, files)) == MIB + 1000


def test_a_limit_of_an_outer_group_counts_and_max_is_none(tmp_path):
    files = host(groups="0::/box/inner\n") | {
        "sys/fs/cgroup/box/inner/memory.max": "max",
        "sys/fs/cgroup/box/inner/memory.current": 5,
        "sys/fs/cgroup/box/memory.max": 90,
        "sys/fs/cgroup/box/memory.current": 20,
    }
    assert free_memory("cpu", tree(tmp_path, files)) == 70


def test_groups_of_the_first_version_are_not_read(tmp_path):
    files = host(kib=3, groups="5:pids:/box\n4:memory:/box\n0::/\n") | {"sys/fs/cgroup/box/memory.max": 1}
    assert free_memory("cpu", tree(tmp_path, files)) == 3 * 1024


def test_nothing_is_left_where_more_is_used_than_allowed(tmp_path):
    files = host() | {"sys/fs/cgroup/memory.max": 5, "sys/fs/cgroup/memory.current": 9}
    assert free_memory("cpu", tree(tmp_path, files)) == 0


def test_systems_that_do_not_tell_are_not_guessed_at(tmp_path):
    assert free_memory("cpu", tmp_path) is None
    assert free_memory("meta") is None


def test_of_a_gpu_it_is_what_the_driver_has_and_what_torch_keeps_for_later(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 999))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert free_memory("cuda:0") == 130
