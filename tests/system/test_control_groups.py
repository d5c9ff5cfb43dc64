"""What control groups leave, from their files and in a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import environment, planted, write_bare

from kmufs_stream.system.control_groups import cpu_quota, memory_left

GB = 10**9
MEMORY = Path("/sys/fs/cgroup/memory")
OWN = "job/step"  # the group of this process, in another


def host(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


def memory(version: int, limit: str, used: int, cache: int) -> dict[str, str]:
    if version == 2:
        names = "memory.max", "memory.current", f"anon 1\ninactive_file {cache}"
    else:
        names = "memory.limit_in_bytes", "memory.usage_in_bytes", f"total_inactive_file {cache}"
    return {names[0]: limit, names[1]: str(used), "memory.stat": names[2]}


def in_group(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"sys/fs/cgroup/{folder}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("version", "groups", "top", "unlimited"),
    [
        (2, f"0::/{OWN}", "", "max"),
        (2, f"1:name=systemd:/x\n0::/{OWN}", "unified", "max"),
        (1, f"5:cpu,cpuacct:/x\n4:memory:/{OWN}\n0::/", "memory", str(2**63 - 4096)),
    ],
)
def test_the_tightest_group_counts_without_its_page_cache(
    tmp_path: Path, version: int, groups: str, top: str, unlimited: str
) -> None:
    tight = in_group(f"{top}/job", memory(version, str(3 * GB), 3 * GB - 400, 2 * GB))
    loose = in_group(f"{top}/{OWN}", memory(version, unlimited, GB, 0))
    assert memory_left(host(tmp_path, groups, tight | loose)) == 2 * GB + 400
    tighter = in_group(f"{top}/{OWN}", memory(version, str(GB), GB // 4, 0))
    assert memory_left(host(tmp_path, groups, tight | tighter)) == GB - GB // 4
    over = in_group(f"{top}/{OWN}", memory(version, str(GB), GB + 1, 0))
    assert memory_left(host(tmp_path, groups, over)) == 0


def test_a_container_sees_its_own_group_at_the_top_and_other_machines_none(tmp_path: Path) -> None:
    assert memory_left(tmp_path) == cpu_quota(tmp_path) == float("inf")
    files = in_group("memory", memory(1, str(GB), 0, 0))
    assert memory_left(host(tmp_path, "4:memory:/docker/abc\n0::/", files)) == GB


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 1.5),
        ("0::/job/step", {"job/cpu.max": "800000 100000", "job/step/cpu.max": "50000 25000"}, 2),
        (
            "3:cpu,cpuacct:/job",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "300000",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        ("0::/job", {}, float("inf")),
    ],
)
def test_cores_are_those_whose_time_is_given(
    tmp_path: Path, groups: str, files: dict[str, str], cores: float
) -> None:
    assert cpu_quota(host(tmp_path, groups, in_group("", files))) == cores


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory group of 1.5 GB, where this process may make one."""
    folder = MEMORY / f"kmufs-{os.getpid()}" / "step"
    try:
        folder.mkdir(parents=True)
        (folder.parent / "memory.limit_in_bytes").write_text("1500000000")
    except OSError:
        pytest.skip("no memory group can be made here")
    yield folder
    for made in (folder, folder.parent):
        with suppress(OSError):
            made.rmdir()


def test_a_run_in_a_memory_group_keeps_within_it(group: Path, tmp_path: Path) -> None:
    data = write_bare(tmp_path / "x.zarr", planted(2000, 20), chunks=(500, 20))
    run = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m kmufs_stream_cli"
    words = f"plan {data} --k 3 --h 5 --json"
    done = subprocess.run(["sh", "-c", f"{run} {words}"], env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    budget = json.loads(done.stdout)["budget_bytes"]
    assert 0.5e9 < budget <= 0.75e9  # half of what the imports have left


@pytest.mark.skipif(sys.platform != "linux", reason="limits of this kind are Linux's")
def test_what_ulimit_leaves_is_all_there_is() -> None:
    asked = "from kmufs_stream.system.memory import available_memory as a; print(a())"
    shell = f"ulimit -v 1000000 && exec {sys.executable} -c '{asked}'"
    done = subprocess.run(["sh", "-c", shell], env=environment(), capture_output=True, check=True)
    assert 0.5e9 < int(done.stdout) < 1.024e9
