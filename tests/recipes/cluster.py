"""A Slurm cluster of one node, this machine, that lives in a folder: `munged`, `slurmctld` and `slurmd` of our own."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo")
PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def is_installed() -> bool:
    """Whether Slurm and munge are here, and we may start them: `slurmd` runs jobs as other users, so it wants root."""
    return os.geteuid() == 0 and all(shutil.which(name, path=PATHS) for name in PROGRAMS)


@contextmanager
def one_node_cluster(folder: Path, cpus: int = 2):
    """Yields the environment in which `sbatch` and the others speak to it."""
    folder.chmod(0o700)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().split(".")[0]
    text = CONFIG.format(host=host, user="root", folder=folder, ports=free_ports(2), cpus=cpus)
    (folder / "slurm.conf").write_text(text)
    environment = {**os.environ, "PATH": PATHS, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.sock"]
    munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
    daemons = []
    try:
        for line in (munge, ["slurmctld", "-D", "-i"], ["slurmd", "-D"]):
            daemons.append(
                subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            time.sleep(1.0)
        wait_for_the_node(environment)
        yield environment
    finally:
        cancel_all(environment)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def wait_for_the_node(environment: dict[str, str]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        line = ["sinfo", "--noheader", "--format=%t"]
        if subprocess.run(line, env=environment, capture_output=True, text=True).stdout.strip() == "idle":
            return
        time.sleep(0.5)
    raise RuntimeError("The node did not come up.")


def cancel_all(environment: dict[str, str]) -> None:
    """Leave no job behind, since it would outlive the daemons."""
    for _ in range(60):
        subprocess.run(["scancel", "--me"], env=environment, capture_output=True, check=False)
        left = subprocess.run(["squeue", "--noheader"], env=environment, capture_output=True, text=True, check=False)
        if not left.stdout.strip():
            return
        time.sleep(0.5)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
