"""The first process of a test cluster: when it ends, for whatever reason, the kernel ends the whole cluster.

It is started as process 1 of new process and mount namespaces. Whatever a cluster leaves outside of its own
directory (sockets, container state, logs, mounts, kernel parameters) goes to file systems that only it sees. It then
collects orphans until its standard input ends, which is the case when the process that owns the cluster is gone.

Run as a script, without the rest of the package: ``init.py DIRECTORY {leased|free}``.
"""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys

PRIVATE = ("/run", "/var/log", "/var/lib/cni")
# What a kubelet sets for the whole machine. It finds them set as it likes and leaves the machine alone.
PARAMETERS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def main(directory: pathlib.Path, lease: str) -> None:
    for place in PRIVATE:
        pathlib.Path(place).mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", "mode=0755", "liqod-testbed", place)
    for name in ("netns", "lock", "wireguard"):
        pathlib.Path("/run", name).mkdir()
    sys_ = directory / "sys"
    for name, value in PARAMETERS.items():
        if pathlib.Path("/proc/sys", name).exists():
            file = sys_ / name.replace("/", ".")
            file.parent.mkdir(exist_ok=True)
            file.write_text(value + "\n")
            mount("--bind", str(file), f"/proc/sys/{name}")
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake, notify = os.pipe()
    os.set_blocking(notify, False)
    signal.set_wakeup_fd(notify)
    watched = [wake, *([0] if lease == "leased" else [])]
    while True:
        readable, _, _ = select.select(watched, [], [])
        if 0 in readable and not os.read(0, 64):
            return
        if wake in readable:
            os.read(wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
